"""One connection to one broker: requests leave in order, answers come back in order.

Owns the socket, framing and correlation; messages are encoded and decoded by `kafka.protocol`, except
Produce, whose batches are handed to the kernel as they lie in memory (`send_raw`). A frame is received
straight into its own buffer, and record bytes in an answer are views into it: the payload of a batch is
never copied in user space.

Why not `kafka.net`: it reads 4 KB at a time and copies frames on the way in and out.

What must stay true: when a link is lost, every request in flight fails with `BrokerUnreachable`, whose
meaning is "outcome unknown". A link never reconnects and never repeats a request: that is the caller's
decision. Between `hold` and `release` requests wait and keep their order; only `send_first` still sends.
"""

from __future__ import annotations

import asyncio
import collections
import ssl
import struct
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from isthmus.errors import BrokerUnreachable, WireError
from isthmus.tunnel.identity import PROTOCOL
from isthmus.wire.fetch_answer import FIRST_FLEXIBLE, read_fetch_answer, skip_tags
from isthmus.wire.nulls import refuse_nulls
from isthmus.wire.security.nested import Connected, NestedTls

CLIENT_ID = "isthmus"
MAX_FRAME = 1 << 30
_SMALL = 64 << 10
_FETCH = 1
_RECORD = 16 << 10  # of TLS, at most
_IOV_LIMIT = 512  # well below the kernel's 1,024 buffers for one sendmsg
_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
# What decoders raise for bytes that end too early, lead out of the frame, or are no text.
_UNREADABLE = (ValueError, LookupError, OverflowError, TypeError, struct.error)
_BLOCKED = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

Message = Any  # kafka.protocol classes are built at run time from Apache's schemas: no static types
Answer = Any


class Offer(NamedTuple):
    """What a broker offers: version range by API key, and the finalized features of its cluster."""

    ranges: dict[int, tuple[int, int]]
    features: dict[str, int]

    def best(self, api_key: int, ceiling: int, floor: int = 0) -> int:
        """The highest version up to `ceiling` that the broker knows; -1 when there is none."""
        low, high = self.ranges.get(api_key, (0, -1))
        chosen = min(high, ceiling)
        return chosen if chosen >= max(low, floor) else -1


class Undecodable(ValueError):
    """The bytes of an answer are none that it could have in its version."""


class _Pending(NamedTuple):
    correlation: int
    response: Any
    version: int
    future: asyncio.Future[Answer]
    deadline: float


class Link:
    """A connected, authenticated, non-blocking connection; made by `isthmus.wire.dial`."""

    def __init__(self, sock: Connected, name: str, offer: Offer, timeout_s: float) -> None:
        self.name = name
        self.offer = offer
        self.lost: BrokerUnreachable | None = None
        self._sock = sock
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._pending: collections.deque[_Pending] = collections.deque()
        self._outgoing: collections.deque[memoryview] = collections.deque()
        self._correlation = 0
        self._size_buffer = bytearray(4)
        self._frame = memoryview(self._size_buffer)
        self._filled = 0
        self._in_body = False
        self._writing = False
        self._held: list[tuple[list[memoryview], _Pending]] | None = None
        self._keeper: asyncio.Future[None] | None = None
        sock.setblocking(False)
        self._loop.add_reader(sock, self._readable)
        self._timer = self._loop.call_later(1.0, self._watch)

    @property
    def sent(self) -> int:
        """Requests so far."""
        return self._correlation

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def peer(self) -> tuple[bytes, str] | None:
        """The broker's certificate (DER) and the version of TLS that is spoken; None: in clear."""
        if not isinstance(self._sock, ssl.SSLSocket | NestedTls) or self._sock.selected_alpn_protocol() == PROTOCOL:
            return None  # in clear, perhaps inside of a tunnel's own TLS
        return self._sock.getpeercert(binary_form=True) or b"", self._sock.version() or ""

    def send(self, message: Message, version: int, timeout_s: float | None = None) -> asyncio.Future[Answer]:
        """Queue one request at a fixed version; the future holds the decoded answer."""
        frame = self._encoded(message, version)
        return self._enqueue([frame], message.header.get_response_class(), version, timeout_s)

    def send_first(self, message: Message, version: int) -> asyncio.Future[Answer]:
        """As `send`, also while other requests are held."""
        frame = self._encoded(message, version)
        return self._enqueue([frame], message.header.get_response_class(), version, None, first=True)

    def _encoded(self, message: Message, version: int) -> memoryview:
        message.API_VERSION = version
        self._correlation += 1
        message.with_header(correlation_id=self._correlation, client_id=CLIENT_ID)
        return memoryview(message.encode(framed=True, header=True))

    def hold(self) -> None:
        """Send nothing but what `send_first` is given, until `release`."""
        self._held = self._held or []

    def release(self) -> None:
        held, self._held = self._held or [], None
        for views, pending in held:
            self._dispatch(views, pending)

    def keep(self, keeper: asyncio.Future[None]) -> None:
        """A task that lives as long as this link."""
        self._keeper = keeper

    def send_raw(self, api_key: int, version: int, flexible: bool, parts: Sequence[Any]) -> asyncio.Future[Answer]:
        """Queue a request whose body was encoded by the caller, without copying its parts."""
        self._correlation += 1
        client = CLIENT_ID.encode()
        head = _HEADER.pack(api_key, version, self._correlation, len(client)) + client
        head += b"\0" if flexible else b""
        size = len(head) + sum(len(part) for part in parts)
        views = [memoryview(_SIZE.pack(size) + head), *(memoryview(part) for part in parts)]
        kind = ResponseClassRegistry._response_class_registry[api_key][version]
        return self._enqueue(views, kind, version, None)

    def close(self) -> None:
        self.lose("closed by us")

    def _enqueue(
        self, views: list[memoryview], kind: Any, version: int, timeout_s: float | None, *, first: bool = False
    ) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = self._loop.create_future()
        if self.lost is not None:
            future.set_exception(self.lost)
            return future
        deadline = time.monotonic() + (timeout_s or self._timeout_s)
        pending = _Pending(self._correlation, kind, version, future, deadline)
        if self._held is not None and not first:
            self._held.append((views, pending))
        else:
            self._dispatch(views, pending)
        return future

    def _dispatch(self, views: list[memoryview], pending: _Pending) -> None:
        self._pending.append(pending)
        self._outgoing.extend(views)
        if not self._writing:
            self._writable()

    def _writable(self) -> None:
        try:
            while self._outgoing:
                self._send_some()
        except _BLOCKED:
            self._want_writing(True)
        except OSError as error:
            self.lose(str(error))
        else:
            self._want_writing(False)

    def _send_some(self) -> None:
        if isinstance(self._sock, ssl.SSLSocket | NestedTls):
            self._join_small()
            sent = self._sock.send(self._outgoing[0])
        else:
            few = [self._outgoing[i] for i in range(min(len(self._outgoing), _IOV_LIMIT))]
            sent = self._sock.sendmsg(few)
        while sent and self._outgoing:
            head = self._outgoing[0]
            if sent < len(head):
                self._outgoing[0] = head[sent:]
                return
            sent -= len(head)
            self._outgoing.popleft()

    def _join_small(self) -> None:
        """Small parts share a TLS record. What was offered once stays whole: OpenSSL wants the same bytes again."""
        if len(self._outgoing) == 1 or len(self._outgoing[0]) + len(self._outgoing[1]) > _RECORD:
            return
        parts = [self._outgoing.popleft()]
        size = len(parts[0])
        while self._outgoing and size + len(self._outgoing[0]) <= _RECORD:
            parts.append(self._outgoing.popleft())
            size += len(parts[-1])
        self._outgoing.appendleft(memoryview(b"".join(parts)))

    def _want_writing(self, wanted: bool) -> None:
        if wanted and not self._writing:
            self._loop.add_writer(self._sock, self._writable)
        elif self._writing and not wanted:
            self._loop.remove_writer(self._sock)
        self._writing = wanted

    def _readable(self) -> None:
        try:
            while self.lost is None:
                count = self._sock.recv_into(self._frame[self._filled :])
                if count == 0:
                    self.lose("the broker closed the connection")
                    return
                self._filled += count
                if self._filled == len(self._frame):
                    self._frame_complete()
        except _BLOCKED:
            return
        except OSError as error:
            self.lose(str(error))

    def _frame_complete(self) -> None:
        frame, self._filled = self._frame, 0
        if not self._in_body:
            (size,) = _SIZE.unpack(frame)
            if not 4 <= size <= MAX_FRAME:
                self.lose(f"frame of {size} bytes announced")
                return
            self._frame = _room(size)
            self._in_body = True
            return
        self._frame, self._in_body = memoryview(self._size_buffer), False
        self._answer(frame)

    def _answer(self, frame: memoryview) -> None:
        if not self._pending:
            self.lose("an answer came that nobody asked for")
            return
        pending = self._pending.popleft()
        (correlation,) = _SIZE.unpack_from(frame, 0)
        if correlation != pending.correlation:
            self._pending.appendleft(pending)
            self.lose(f"answer {correlation} came where {pending.correlation} was due")
            return
        if pending.future.done():
            return  # the caller gave up waiting; the order of answers still had to be kept
        try:
            pending.future.set_result(decode_answer(pending.response, pending.version, frame))
        except Undecodable as error:
            pending.future.set_exception(WireError(str(error), where=self.name))
            self.lose("an answer could not be decoded")

    def _watch(self) -> None:
        if self.lost is not None:
            return
        if self._pending and time.monotonic() > self._pending[0].deadline:
            self.lose("no answer within the request timeout")
            return
        self._timer = self._loop.call_later(1.0, self._watch)

    def lose(self, why: str) -> None:
        """Give the connection up: every request that has no answer fails with this reason."""
        if self.lost is not None:
            return
        self.lost = BrokerUnreachable(f"connection lost: {why}", where=self.name)
        self._timer.cancel()
        self._loop.remove_reader(self._sock)
        if self._writing:
            self._loop.remove_writer(self._sock)
        self._sock.close()
        self._outgoing.clear()
        if self._keeper is not None:
            self._keeper.cancel()
        self._pending.extend(pending for _, pending in self._held or ())
        while self._pending:
            future = self._pending.popleft().future
            if not future.done():
                future.set_exception(self.lost)
                future.exception()  # mark as seen: a caller that was cancelled never will


def decode_answer(kind: Any, version: int, frame: memoryview) -> Answer:
    """Decode the body after the response header (4 bytes, plus tagged fields in flexible versions)."""
    try:
        return _decoded(kind, version, frame)
    except _UNREADABLE as error:
        raise Undecodable(f"an answer could not be decoded: {error}") from error


def decode_body(kind: Any, version: int, body: Any) -> Answer:
    """As `decode_answer`, without the header."""
    try:
        return _whole(kind, version, body)
    except _UNREADABLE as error:
        raise Undecodable(f"an answer could not be decoded: {error}") from error


def _decoded(kind: Any, version: int, frame: memoryview) -> Answer:
    start = 4
    if kind.flexible_version_q(version) and kind.API_KEY != ApiVersionsRequest.API_KEY:
        start = skip_tags(frame, start)
    if kind.API_KEY == ApiVersionsRequest.API_KEY:
        return ApiVersionsResponse[version].decode(bytes(frame[start:]))
    if kind.API_KEY == _FETCH and version >= FIRST_FLEXIBLE:
        return read_fetch_answer(frame[start:], version)
    return _whole(kind, version, frame[start:])


def _whole(kind: Any, version: int, body: Any) -> Answer:
    answer = kind.decode(body, version=version)
    if isinstance(kind, type):  # else it is read later (`unread`)
        refuse_nulls(kind, version, answer)
    return answer


def _room(size: int) -> memoryview:
    """Memory for one frame. Numpy's is not cleared first, which pays for large ones; small ones need no numpy, which
    takes a command that only looks a tenth of a second to load."""
    if size < _SMALL:
        return memoryview(bytearray(size))
    import numpy as np

    return np.empty(size, np.uint8).data

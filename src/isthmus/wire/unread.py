"""A request whose answer is handed over as it came: whoever asks again and again may know the bytes already.

Decoding the metadata of 10,000 partitions takes tenths of a second of CPU, comparing its bytes less than a
thousandth. What must stay true: equal bytes mean an equal answer, as an answer's body holds neither clock nor counter;
one that a broker has delayed differs by its throttle time, and is only decoded for nothing.
"""

from __future__ import annotations

from typing import Any

from isthmus.errors import WireError
from isthmus.wire.link import Answer, Message, Undecodable, decode_body


class Unread:
    """Stands in for a message of `kafka.protocol`; its answer is bytes, which `read` decodes."""

    def __init__(self, message: Message) -> None:
        self.API_KEY = message.API_KEY
        self.API_VERSION = -1
        self._message = message
        self._kind: Any = None

    @property
    def header(self) -> Unread:
        return self

    def with_header(self, **fields: Any) -> None:
        self._message.API_VERSION = self.API_VERSION
        self._message.with_header(**fields)

    def encode(self, **how: Any) -> bytes:
        encoded: bytes = self._message.encode(**how)
        return encoded

    def get_response_class(self) -> Unread:
        self._kind = self._message.header.get_response_class()
        return self

    def flexible_version_q(self, version: int) -> bool:
        return bool(self._kind.flexible_version_q(version))

    def decode(self, body: memoryview, version: int) -> bytes:
        return bytes(body)

    def read(self, body: bytes) -> Answer:
        try:
            return decode_body(self._kind, self.API_VERSION, body)
        except Undecodable as error:
            raise WireError(str(error)) from error

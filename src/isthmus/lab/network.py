"""Doors through which clients reach brokers, and the weather between them: cuts, silence, delay, slow links, resets.

    with Network() as network:
        door = network.door()            # a port to tell clients of
        door.target = 9092               # the broker's own
        door.weather = Weather(cut=True)

One thread with an event loop for all doors. What must stay true: bytes stay in order and whole as long as a connection
lives, whatever the weather; a change of weather is felt by connections that stand, not only by new ones. When to
change it is left to others.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from isthmus.errors import MachineError
from isthmus.lab.brokers import HOST

_AT_ONCE = 64 << 10
_LOOK_S = 0.05
_RST = struct.pack("ii", 1, 0)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What happens to bytes. Fine as it is made."""

    cut: bool = False  # connections end, and none is accepted
    silent: bool = False  # nothing passes, and nobody is told; later it goes on
    delay_s: float = 0.0  # before each piece
    bytes_per_s: int = 0  # of each connection and direction
    slice: int = 0  # at most so many bytes at a time
    reset_after: int = 0  # bytes of a connection, then both ends see a reset


class Door:
    """A port that leads to a broker's, on this machine unless `host` says otherwise."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.host, self.target = HOST, 0
        self.weather = Weather()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until an end of it closes or the weather ends it."""
        ends = [writer]
        try:
            if self.weather.cut:
                return
            far_reader, far_writer = await asyncio.open_connection(self.host, self.target)
            ends.append(far_writer)
            pumps = [asyncio.create_task(self._pump(reader, far_writer, ends))]
            pumps.append(asyncio.create_task(self._pump(far_reader, writer, ends)))
            _, left = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in left:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass  # the broker is not there: the client sees its connection end
        finally:
            for end in ends:
                end.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, ends: list[Any]) -> None:
        passed = 0
        reading = asyncio.create_task(source.read(_AT_ONCE))
        try:
            while not self.weather.cut:
                done, _ = await asyncio.wait([reading], timeout=_LOOK_S)
                if not done or self.weather.silent:
                    await asyncio.sleep(_LOOK_S if done else 0)
                    continue
                if not (some := reading.result()):
                    return
                await self._pass_on(some, sink)
                passed += len(some)
                if 0 < self.weather.reset_after < passed:
                    return _reset(ends)
                reading = asyncio.create_task(source.read(_AT_ONCE))
        except OSError:
            return
        finally:
            reading.cancel()

    async def _pass_on(self, some: bytes, sink: asyncio.StreamWriter) -> None:
        at = 0
        while at < len(some):
            weather = self.weather
            piece = some[at : at + (weather.slice or _AT_ONCE)]
            if weather.delay_s:
                await asyncio.sleep(weather.delay_s)
            sink.write(piece)
            await sink.drain()
            if weather.bytes_per_s:
                await asyncio.sleep(len(piece) / weather.bytes_per_s)
            at += len(piece)


def _reset(ends: list[Any]) -> None:
    """Both sides see a reset, not an end."""
    for end in ends:
        sock = end.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
        end.transport.abort()


class Network:
    """All doors of a lab. `kind`: what they are made as."""

    def __init__(self, kind: type[Door] = Door) -> None:
        self._kind = kind
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._servers: list[asyncio.Server] = []
        # asyncio knows a stream's reader weakly: a connection whose client is gone, while its broker still thinks,
        # would be collected as garbage in the middle.
        self._serving: set[asyncio.Task[None] | None] = set()

    def __enter__(self) -> Network:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def door(self) -> Door:
        """A new one, on a port of its own; it leads nowhere until it is told where."""
        return self._call(self._open())

    async def _open(self) -> Door:
        door = self._kind(0)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._serving.add(mine := asyncio.current_task())
            try:
                await door.serve(reader, writer)
            finally:
                self._serving.discard(mine)

        server = await asyncio.start_server(serve, HOST, 0)
        door.port = server.sockets[0].getsockname()[1]
        self._servers.append(server)
        return door

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)
        except TimeoutError:
            raise MachineError("the network of the lab does not answer", code="LAB") from None

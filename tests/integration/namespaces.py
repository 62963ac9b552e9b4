"""A network of its own for a source cluster, joined to this one by a cable through which one port passes.

The namespace's own routing rules are its firewall: what does not belong to the tunnel's port is dropped, both ways
(no packet filter needs to be installed for that). Names of brokers stand in a hosts file that only the namespace has.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

PORT = 7443


class Unable(Exception):
    """This machine cannot make network namespaces; why."""


class Network:
    """`near` is our end of the cable, `far` the namespace's, `inner` the address that brokers have in there."""

    def __init__(self) -> None:
        self.name = f"ist{uuid.uuid4().hex[:8]}"
        # 198.18.0.0/15 is set aside for tests of networks.
        base = f"198.{random.choice((18, 19))}.{random.randrange(256)}.{random.randrange(0, 256, 16)}"
        head, _, last = base.rpartition(".")
        self.near, self.far, self.inner = (f"{head}.{int(last) + number}" for number in (1, 2, 10))
        self._cable = f"v{self.name}"
        self._folder = Path("/etc/netns") / self.name
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Network:
        if os.geteuid() != 0 or not shutil.which("ip"):
            raise Unable("it takes root, and the `ip` command")
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for process in self._processes:
                self.end(process)
        finally:
            self._remove()

    def _make(self) -> None:
        self._ip("netns", "add", self.name)
        inside = f"c{self.name}"
        self._ip("link", "add", self._cable, "type", "veth", "peer", "name", inside, "netns", self.name)
        self._ip("addr", "add", f"{self.near}/29", "dev", self._cable)
        self._ip("link", "set", self._cable, "up")
        self._ip("route", "add", f"{self.inner}/32", "via", self.far)
        for words in (
            ("addr", "add", f"{self.far}/29", "dev", inside),
            ("addr", "add", f"{self.inner}/32", "dev", "lo"),
            ("link", "set", inside, "up"),
            ("link", "set", "lo", "up"),
        ):
            self._ip("-n", self.name, *words)
        # What is needed later must work now, or the tests are left out.
        trial = ("pref", "40", "ipproto", "tcp", "dport", "1", "lookup", "main")
        for word in ("add", "del"):
            self._ip("-n", self.name, "rule", word, *trial)
        self._ip("netns", "exec", self.name, "true")
        self._write_names()
        self._inside = inside

    def _write_names(self) -> None:
        try:
            self._folder.mkdir(parents=True)
        except OSError as error:
            raise Unable(f"{self._folder}: {error.strerror}") from None
        names = "".join(f"{self.inner} b{node}.far.internal\n" for node in (1, 2))
        (self._folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        (self._folder / "resolv.conf").write_text("")

    def close_all_but(self, port: int, *, inwards: bool) -> None:
        """From now on only TCP to this port (of ours if not `inwards`) and its answers pass."""
        there, back = ("dport", "sport") if inwards else ("sport", "dport")
        tcp, number = ("ipproto", "tcp"), str(port)
        rules: list[Sequence[str]] = [
            ("pref", "10", "iif", "lo", "lookup", "local"),
            ("pref", "20", "iif", self._inside, *tcp, there, number, "lookup", "local"),
            ("pref", "30", "iif", self._inside, "blackhole"),
            ("pref", "40", *tcp, back, number, "lookup", "main"),
            ("pref", "50", "blackhole"),
        ]
        self._ip("-n", self.name, "rule", "flush")
        for rule in rules:
            self._ip("-n", self.name, "rule", "add", *rule)
        # Last: until here, the kernel's own first rule delivered everything.
        self._ip("-n", self.name, "rule", "del", "pref", "0", check=False)

    def run(self, *command: str) -> subprocess.Popen[str]:
        """A Python program inside."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self._processes.append(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _remove(self) -> None:
        self._ip("link", "del", self._cable, check=False)
        self._ip("netns", "del", self.name, check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    @staticmethod
    def _ip(*words: str, check: bool = True) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise Unable(f"`ip {' '.join(words)}`: {done.stderr.strip()}")


class Asked:
    """A program that answers a line of JSON with a line of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def heard(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the program in the namespace ended"
        return json.loads(line)

    def __call__(self, what: str, **words: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **words}) + "\n")
        self._process.stdin.flush()
        return self.heard()

"""Every command block of README.md and docs/tutorial.md is run, as the comment before it says.

    <!-- run -->                      it ends with status 0; further words, each after a comma:
         shows: TEXT                  its output holds TEXT
         until: TEXT                  it is run again and again until its output holds TEXT
         exit: N                      it ends with this status
    <!-- file: NAME -->               it is the content of a file
    <!-- lines: TEXT -->              commands one by one, as `test_every_command_of_the_readme...` does; TEXT says how
    <!-- not run: TEXT -->            and why not

Commands are run without Spark (`tests.threaded`), which has tests of its own; with ISTHMUS_DOCS_SPARK=1 the tutorial
runs on it. Processes that a tutorial leaves behind are known by a mark in their environment, and ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from tests.crossing import Crossing
from tests.integration.command import Ended, called, fill, unique, wait_for
from tests.threaded import in_threads

from isthmus.config.load import load
from isthmus.lab import Lab
from isthmus.lab.jars import jars

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:^<!-- (?P<how>.+?) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PATIENCE_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    how: str  # the comment before it
    kind: str  # its language; output has none
    text: str

    def word(self, name: str) -> str:
        """What the comment says after `name:`, or nothing."""
        found = re.search(rf"(?:^|, ){name}: (.+?)(?=, (?:shows|until|exit): |$)", self.how)
        return found[1] if found else ""


def blocks(page: str) -> list[Block]:
    found = BLOCK.finditer((ROOT / page).read_text())
    return [Block(how=each["how"] or "", kind=each["kind"], text=each["text"]) for each in found]


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_every_block_says_how_it_is_run(page: str) -> None:
    found = [each for each in blocks(page) if each.kind]
    ways = ("run", "file: ", "lines: ", "not run: ")
    assert len(found) > 5
    assert [each.text for each in found if not each.how.startswith(ways)] == []


# --- the tutorial -----------------------------------------------------------------------------


class Shell:
    """Blocks one after the other, as in one terminal: variables stay, and so do processes in the background."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mark = uuid.uuid4().hex
        commands = folder / "bin"
        commands.mkdir()
        module = "isthmus" if os.environ.get("ISTHMUS_DOCS_SPARK") else "tests.threaded"
        _script(commands / "isthmus", f'exec {shlex.quote(sys.executable)} -m {module} "$@"')
        _script(commands / "python", f'exec {shlex.quote(sys.executable)} "$@"')
        self._environment = os.environ | {
            "PATH": f"{commands}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "ISTHMUS_CACHE": str(_own_cache(folder / "cache")),
            "ISTHMUS_DOCS_MARK": self._mark,
            "COLUMNS": "110",
            "NO_COLOR": "1",
        }

    def run(self, text: str, seconds: float = PATIENCE_S) -> Ended:
        """In files, not pipes: what stays in the background keeps them open."""
        state, out = self._folder / "state.sh", self._folder / "out"
        script = f"set -ea; touch {state}; . {state}; cd {self._folder}\n{text}\nset +a; export -p > {state}\n"
        began = time.monotonic()
        with out.open("wb") as told:
            done = subprocess.run(
                ["bash", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=subprocess.STDOUT,
                env=self._environment,
                timeout=seconds,
                check=False,
            )
        return Ended(code=done.returncode, out=out.read_text(), err="", seconds=time.monotonic() - began)

    def end(self) -> None:
        """Kill whatever it started and did not end."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("ISTHMUS_DOCS_MARK") == self._mark:
                    process.kill()


def _script(file: Path, line: str) -> None:
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o755)


def _own_cache(folder: Path) -> Path:
    """With Kafka's jars, and without the lab that a developer may run."""
    folder.mkdir()
    for made in jars().parent.glob("kafka-*"):
        (folder / made.name).symlink_to(made)
    return folder


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    found = Shell(tmp_path)
    try:
        yield found
    finally:
        found.end()


def test_the_tutorial_does_what_it_says(shell: Shell, tmp_path: Path) -> None:
    seen: list[Ended] = []
    for block in blocks("docs/tutorial.md"):
        if name := block.word("file"):
            (tmp_path / name).write_text(block.text)
        elif block.how.startswith("run"):
            seen.append(_done(shell, block))
            print(f"--- {block.how}\n{block.text}\n{seen[-1]}")
    assert len(seen) > 10


def _done(shell: Shell, block: Block) -> Ended:
    wanted = block.word("until")
    deadline = time.monotonic() + PATIENCE_S
    found = shell.run(block.text)
    while wanted and wanted not in found.out:
        assert time.monotonic() < deadline, f"{wanted!r} did not come:\n{block.text}\n{found}"
        found = shell.run(block.text)
    assert found.code == int(block.word("exit") or 0), f"{block.text}\n{found}"
    assert block.word("shows") in found.out, f"{block.text}\n{found}"
    return found


# --- the README -------------------------------------------------------------------------------


BEFORE = {"doctor", "acls", "plan"}  # what one asks before a flow runs
ENDLESS = {"run", "ui", "top"}  # until they are ended: they have tests of their own


class Readme:
    """Its file and its commands, with names and addresses of the lab in place of those that stand there."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.alias = unique("readme")
        self.orders, self.invoices = unique("orders"), f"{unique('invoices')}.paid"
        self._folder = folder
        prefix = self.invoices.removesuffix("paid")
        self._names = {
            "east-1:9092,east-2:9092": lab["east"].bootstrap,
            "west-1:9092": lab["west"].bootstrap,
            "east: {": f"{self.alias}: {{",
            "from: east": f"from: {self.alias}",
            "orders": self.orders,
            "invoices\\\\.": prefix.replace(".", "\\\\."),
            "invoices.": prefix,
        }
        for topic in (self.orders, self.invoices):
            fill(lab["east"], topic, 200, partitions=1)

    def told(self, text: str) -> str:
        for name, here in self._names.items():
            text = text.replace(name, here)
        return text

    def file(self, block: Block) -> Path:
        path = self._folder / "flow.yaml"
        path.write_text(self.told(block.text))
        return path

    def words(self, line: str) -> list[str]:
        """Of one command line, without the program and what follows `#`."""
        words = shlex.split(self.told(line), comments=True)[1:]
        return [str(self._folder / word) if word == "flow.yaml" else word for word in words]


def test_every_command_of_the_readme_does_what_its_file_asks_for(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what a command leaves in its folder
    readme = Readme(lab, tmp_path)
    (flow,) = [each for each in blocks("README.md") if each.how == "file: flow.yaml"]
    (commands,) = [each for each in blocks("README.md") if each.how.startswith("lines")]
    file = readme.file(flow)
    lines = [readme.words(line) for line in commands.text.splitlines()]
    assert ["run", str(file)] in lines
    with in_threads():
        for words in lines:
            if words[0] in BEFORE or "--until-caught-up" in words:
                _fine(words)
        with Crossing(load(file).flows[0]) as crossing:
            crossing.until(lambda status: status.lag < 100, 120)
            for words in lines:
                if words[0] not in BEFORE | ENDLESS:
                    _fine([*words, "--once"] if words[0] == "metrics" else words)


def _fine(words: list[str]) -> None:
    """Soon: a flow that has just begun, on a busy machine, may still be told as not running, or as behind."""
    seen: list[Ended] = []

    def fine() -> bool:
        seen.append(called(*words))
        return seen[-1].code == 0

    try:
        wait_for(fine, what=" ".join(words))
    except AssertionError:
        print(seen[-1])
        raise
    assert seen[-1].out + seen[-1].err, words


def test_the_transform_of_the_readme_is_one(lab: Lab, tmp_path: Path) -> None:
    readme = Readme(lab, tmp_path)
    flow, transform = (each for each in blocks("README.md") if each.how.startswith("file: "))
    file = readme.file(flow)
    file.write_text(file.read_text().replace("    lanes: 2\n", transform.text))
    assert load(file).flows[0].transform is not None
    assert called("config", "check", file).code == 0

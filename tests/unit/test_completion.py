"""Tab: what a real bash completes, what other shells are told, and that nothing heavy is imported for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.terminal import Terminal
from typer.testing import CliRunner

from isthmus.cli.app import app

ISTHMUS = Path(sys.executable).parent / "isthmus"
BASH = shutil.which("bash")
FLOW = """clusters: {east: {bootstrap: 'e:1'}, west: {bootstrap: 'w:1'}}
flows: [{from: east, to: west, topics: [orders, "invoices\\\\..*", "shop\\\\.returns"]}]
"""
HEAVY = {"numba", "numpy", "pyspark", "kafka", "lz4", "prometheus_client"}
LOOK = """
import sys
from isthmus.cli.app import app
from isthmus.cli.completing import _flows
class Line: params = {"file": "flow.yaml"}; args = []
print(*(flow.name for flow in _flows(Line)), *sys.modules)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flow.yaml").write_text(FLOW)
    return tmp_path


def asked(*words: str, shell: str = "bash", action: str = "complete") -> str:
    """What the completion of a shell asks for, and is told."""
    env = {"_ISTHMUS_COMPLETE": f"{action}_{shell}", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    env |= {"_TYPER_COMPLETE_ARGS": " ".join(words), "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    return CliRunner().invoke(app, [], env=env, prog_name="isthmus").output


@pytest.mark.skipif(BASH is None or not ISTHMUS.exists(), reason="no bash here, or no isthmus beside this Python")
def test_a_real_bash_completes_commands_files_and_flows(folder: Path) -> None:
    env = {"PATH": f"{ISTHMUS.parent}:{os.environ['PATH']}", "PS1": "ready> ", "INPUTRC": "/dev/null"}
    with Terminal(["bash", "--norc", "--noprofile", "-i"], env=env, columns=200) as shell:
        shell.press(f'cd {folder}; eval "$(_ISTHMUS_COMPLETE=source_bash isthmus)"; echo s"et"\n')
        shell.until("set\r\n")
        for typed, completed in (
            ("isthmus bund\t", "isthmus bundle "),
            ("isthmus status fl\t", "flow.yaml "),
            ("isthmus status flow.yaml --flow e\t", "east-\\>west "),
        ):
            shell.press(f"\x15{typed}")
            shell.until(completed)
        shell.press("\x15exit\n")
        assert shell.ended() == 0


def test_topics_are_those_that_the_file_names_and_codes_all_that_there_are(folder: Path) -> None:
    file = str(folder / "flow.yaml")
    assert asked("isthmus", "pause", file, "--topic", "").split() == ["orders", "shop.returns"]
    assert asked("isthmus", "pause", "none.yaml", "--topic", "").split() == []
    assert asked("isthmus", "explain", "FOREIGN").split() == ["FOREIGN_WRITE"]


def test_flows_are_quoted_for_bash_alone(folder: Path) -> None:
    words = ("isthmus", "status", str(folder / "flow.yaml"), "--flow", "")
    assert asked(*words).split() == ["east-\\>west"]
    assert asked(*words, shell="fish").split() == ["east->west"]
    assert '"east->west"' in asked(*words, shell="zsh")


def test_a_broken_file_completes_nothing_and_says_nothing(folder: Path) -> None:
    (folder / "flow.yaml").write_text("flows: [")
    assert asked("isthmus", "pause", str(folder / "flow.yaml"), "--topic", "").split() == []


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete"), ("zsh", "compdef"), ("fish", "complete")])
def test_every_shell_gets_its_script(shell: str, word: str) -> None:
    told = asked(shell=shell, action="source")
    assert word in told
    assert "_ISTHMUS_COMPLETE" in told


def test_tab_imports_nothing_heavy(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], cwd=folder, capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert found[0] == "east->west"
    assert not HEAVY & set(found)

"""`isthmus ui` as a process: it says where it listens, serves until it is asked to end, and ends well."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

FLOWS = """
clusters: {east: {bootstrap: "127.0.0.1:1"}, west: {bootstrap: "127.0.0.1:1"}}
flows: [{from: east, to: west, topics: [a]}, {from: west, to: east, topics: [b]}]
"""
SECONDS = 120


def test_the_command_serves_the_flows_of_a_file_until_it_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOWS)
    words = [sys.executable, "-m", "isthmus", "ui", str(file), "--listen", "127.0.0.1:0", "-o", "json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            assert told["changes"] is False
            assert told["token"] is False
            with urllib.request.urlopen(f"{told['ui']}api/hello", timeout=SECONDS) as answer:
                assert json.load(answer)["flows"] == ["east->west", "west->east"]
            with urllib.request.urlopen(f"{told['ui']}main.js", timeout=SECONDS) as answer:
                assert answer.headers["content-type"].startswith("text/javascript")
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()

"""A real Prometheus that scrapes one page every few seconds and evaluates our alert rules."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

ALERTS = Path(__file__).parents[2] / "deploy" / "monitoring" / "alerts.yaml"
PATIENCE_S = 120.0
_LISTENING = re.compile(r'"Listening on".*?address=\S*?:(\d+)')


class Prometheus:
    """`with` it: ready for questions inside."""

    def __init__(self, folder: Path, scraped: int) -> None:
        self._folder = folder
        self._log = folder / "prometheus.log"
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 1s}\n"
            f"rule_files: ['{ALERTS}']\n"
            "scrape_configs:\n"
            f"  - {{job_name: isthmus, static_configs: [{{targets: ['127.0.0.1:{scraped}']}}]}}\n"
        )

    def __enter__(self) -> Prometheus:
        words = [
            "prometheus",
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            "--web.listen-address=127.0.0.1:0",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log, cwd=self._folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def _port(self) -> int:
        """The one that the system gave it, as its log tells."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := _LISTENING.search(self._log.read_text())) is None:
            assert self._process.poll() is None and time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)
        return int(found[1])

    def ask(self, what: str, **words: str) -> dict[str, Any]:
        """Of its API; empty while it does not answer yet."""
        url = f"http://127.0.0.1:{self._port()}/api/v1/{what}?{urllib.parse.urlencode(words)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                return dict(json.load(answer)["data"])
        except (urllib.error.URLError, ConnectionError):
            return {}

    def values(self, query: str) -> list[float]:
        return [float(row["value"][1]) for row in self.ask("query", query=query).get("result", [])]

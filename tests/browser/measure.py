"""How quickly the page paints and updates with 5,000 partitions: `python -m tests.browser.measure` prints it as JSON.

The real application over a made-up status of which every row changes each second, in Debian's Chromium. First paint:
from the beginning of navigation to the first content, as the browser tells it; first rows: until the table stands.
Update: processor time of the browser's main thread for one, with everything (script, style, layout, paint), by the
browser's own counter; and how long the script of one took by the clock, which also grows when other programs are busy.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from typing import Any

from playwright.sync_api import Page, sync_playwright
from tests.pages import flow, made_up

from isthmus.web.server import Settings, serve

PARTITIONS = 5_000
_WITHIN_S = 120.0


def figures(page: Page, url: str, updates: int) -> dict[str, float]:
    """Of a page that was not loaded before."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    began = time.monotonic()
    page.goto(url)
    page.locator("tr.topic, .card").first.wait_for()
    rows_ms = (time.monotonic() - began) * 1000
    spent = _task_seconds(session)
    seen = _updates(page, updates)
    busy = _task_seconds(session) - spent
    return {
        "first_paint_ms": page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"),
        "first_rows_ms": rows_ms,
        "update_ms": busy * 1000 / len(seen),
        "script_by_the_clock_ms": statistics.median(seen),
    }


def _task_seconds(session: Any) -> float:
    found = session.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))


def _updates(page: Page, wanted: int) -> list[float]:
    """Durations of so many changes, one after another."""
    found: dict[float, float] = {}
    until = time.monotonic() + _WITHIN_S
    while len(found) < wanted:
        assert time.monotonic() < until, f"{len(found)} updates in {_WITHIN_S:.0f} s"
        entries = page.evaluate("performance.getEntriesByName('change').map((one) => [one.startTime, one.duration])")
        found |= dict(entries)
        time.sleep(0.1)
    return list(found.values())


def main() -> None:
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    told = {}
    with serve([flow()], made_up(PARTITIONS), Settings(listen="127.0.0.1:0")) as served, sync_playwright() as player:
        browser = player.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for section in ("overview", "topics"):
            page = browser.new_page(viewport={"width": 1240, "height": 900})
            told[section] = {
                name: round(value, 1) for name, value in figures(page, f"{served.url}#/{section}", 8).items()
            }
            page.close()
        browser.close()
    print(json.dumps({"partitions": PARTITIONS, "load": os.getloadavg()[0], **told}, indent=1))


if __name__ == "__main__":
    main()

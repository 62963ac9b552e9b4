"""Debian's Chromium, for a module's tests; where there is none they say so and the rest runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.integration.sources import forget_clients

PATIENCE_MS = 120_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("there is no chromium on this machine (Debian: apt-get install chromium)")
    expect.set_options(timeout=PATIENCE_MS)
    # A container has a small /dev/shm, and root may not use the sandbox.
    flags = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as player:
        found_browser = player.chromium.launch(executable_path=found, args=flags, timeout=PATIENCE_MS)
        yield found_browser
        found_browser.close()
    forget_clients()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A new profile; whatever the page complains about fails the test."""
    context = browser.new_context(viewport={"width": 1240, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    found = context.new_page()
    trouble: list[str] = []
    found.on("pageerror", lambda error: trouble.append(str(error)))
    found.on("dialog", lambda dialog: trouble.append(f"a dialog: {dialog.message}"))
    found.on("console", lambda line: trouble.append(line.text) if "Content Security Policy" in line.text else None)
    yield found
    context.close()
    assert trouble == []

"""The web page in a real browser: over a real flow from its verdict to a switchover, and over 5,000 partitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from tests.browser.measure import PARTITIONS, figures
from tests.crossing import Crossing, carry
from tests.integration.grouped import commit, flow_with_groups
from tests.integration.sources import KEPT, numbered, unique, write
from tests.pages import NASTY, carries_nothing, flow, made_up

from isthmus.engine.exporter import Exporter
from isthmus.lab import Lab
from isthmus.web import collector
from isthmus.web.server import Settings, serve

AXE = Path(__file__).with_name("axe.min.js")
TOKEN = "0123456789abcdef-not-guessed"


@pytest.fixture(scope="module")
def large() -> Iterator[str]:
    """The real application over a made-up status of 5,000 partitions; each second, whatever that costs."""
    settings = Settings(listen="127.0.0.1:0", carry=carries_nothing)
    with pytest.MonkeyPatch.context() as patch, serve([flow()], made_up(PARTITIONS), settings) as served:
        patch.setattr(collector, "LOOKS_SHARE", 1.0)
        yield served.url


def tab(page: Page, name: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=name).click()


@pytest.mark.integration
def test_a_flow_is_seen_steered_and_failed_over(lab: Lab, page: Page) -> None:
    alias, topic = unique("page"), unique("topic")
    lab["east"].create_topic(topic, 2, configs=KEPT)
    write(lab["east"].bootstrap, topic, numbered(100, partitions=2))
    commit(lab["east"].bootstrap, f"{alias}-readers", topic, {0: 10, 1: 20})
    carried = flow_with_groups(lab, topic, alias)
    settings = Settings(listen="127.0.0.1:0", carry=carry)
    with (
        Crossing(carried) as crossing,
        Exporter([carried]) as exporter,
        serve([carried], exporter, settings) as served,
    ):
        crossing.until_copied(100, 120)
        page.goto(served.url)
        expect(page.locator("#verdict")).to_contain_text("All is well")
        card = page.get_by_role("article", name=f"Flow {carried.name}")
        expect(card).to_contain_text("ok")
        expect(card).to_contain_text(f"replicator-{alias}")
        expect(page.get_by_role("img", name=re.compile(f"Flows: {alias} to west"))).to_be_visible()

        _topics(page, topic)
        _groups_and_plan(page, alias)
        _pause_and_resume(page, card)
        _switch_over(page, carried.name)
    assert crossing.error is not None  # the driver ended, because the flow is frozen


def _topics(page: Page, topic: str) -> None:
    tab(page, "Topics")
    rows = page.locator("tr.topic")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name=f"Partitions of {topic}").click()
    expect(page.locator("tr.partition")).to_have_count(2)
    page.get_by_label("Search").fill("no such topic")
    expect(rows).to_have_count(0)
    assert "q=no+such+topic" in page.url
    page.get_by_label("Search").fill(topic[:8].upper())
    expect(rows).to_have_count(1)


def _groups_and_plan(page: Page, alias: str) -> None:
    tab(page, "Groups")
    expect(page.locator("#view")).to_contain_text(f"{alias}-readers")
    expect(page.locator("tbody tr").first).to_contain_text("exact")
    tab(page, "Plan")
    expect(page.locator(".summary")).to_contain_text("nothing to create or change")
    tab(page, "Gaps and events")
    expect(page.locator("#view")).to_contain_text("No stops, no gaps, no decisions")


def _pause_and_resume(page: Page, card: Locator) -> None:
    tab(page, "Overview")
    card.get_by_role("button", name="Pause").click()
    expect(card).to_contain_text("heard by process")
    expect(page.locator("#verdict")).to_contain_text("is paused")
    card.get_by_role("button", name="Resume").click()
    expect(page.locator("#verdict")).to_contain_text("All is well")


def _switch_over(page: Page, name: str) -> None:
    tab(page, "Failover")
    page.get_by_label("Failover", exact=False).first.check()
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("alert").filter(has_text="a failover would leave behind")).to_be_visible()
    page.get_by_label("Switchover").check()
    page.get_by_role("button", name="Show the plan").click()
    expect(page.locator(".estimate")).to_contain_text("nothing: it waits")
    begin = page.get_by_role("button", name="Begin the switchover")
    page.get_by_label("Name of the flow").fill("west->east")
    expect(begin).to_be_disabled()
    page.get_by_label("Name of the flow").fill(name)
    begin.click()
    expect(page.locator(".report")).to_contain_text("nothing was left behind")
    for step in ("writers", "drain", "freeze", "groups", "switch"):
        expect(page.locator(".live-steps li.done").filter(has_text=step).first).to_be_visible()
    expect(page.get_by_role("link", name="Download the report")).to_be_visible()
    expect(page.locator("#verdict")).to_contain_text("was failed over")


def test_5000_partitions_are_painted_searched_and_updated_quickly(large: str, page: Page) -> None:
    """Limits far above what is promised: this machine may be busy. `python -m tests.browser.measure` tells figures."""
    found = figures(page, f"{large}#/topics", updates=1)
    assert found["first_paint_ms"] < 60_000
    assert found["update_ms"] < 1_000  # processor time
    assert page.locator("tr.topic").count() < 100
    expect(page.get_by_role("status").filter(has_text="5,000 partitions")).to_be_visible()
    page.get_by_role("button", name="Show partitions").click()
    expect(page.locator("table.long")).to_have_attribute("aria-rowcount", "5501")
    page.locator(".long-box").evaluate("box => { box.scrollTop = box.scrollHeight; }")
    expect(page.locator("tr.partition").last).to_have_attribute("aria-rowindex", "5501")
    assert page.locator("table.long tr").count() < 120
    page.get_by_label("Verdict").select_option("stopped")
    expect(page.locator("tr.partition")).to_have_count(1)
    page.get_by_role("button", name="GAP").last.click()
    expect(page.get_by_role("dialog")).to_contain_text("What to do")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_what_clusters_say_is_text_and_never_a_part_of_the_page(large: str, page: Page) -> None:
    page.goto(f"{large}#/overview")
    expect(page.locator(".trouble").first).to_contain_text(f"lost {NASTY}")
    assert page.locator("img[src=x]").count() == 0


def test_a_phone_shows_everything_without_moving_sideways(large: str, page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    for section in ("overview", "topics", "records", "failover"):
        page.goto(f"{large}#/{section}")
        expect(page.locator("#verdict")).to_contain_text("stopped")
        expect(page.locator("#view :is(h1, h2)").first).to_be_attached()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, section


@pytest.mark.parametrize(
    ("scheme", "sections"), [("light", ["overview", "failover"]), ("dark", ["topics?q=topic-0000"])]
)
def test_the_page_can_be_read_by_everybody(large: str, browser: Browser, scheme: str, sections: list[str]) -> None:
    """By axe-core: names, landmarks, headers, contrast."""
    context = browser.new_context(bypass_csp=True, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    found = context.new_page()
    for section in sections:
        found.goto(f"{large}#/{section}")
        expect(found.locator("#verdict")).to_contain_text("stopped")
        expect(found.locator("#view h2, #view tr.topic, #view legend").first).to_be_attached()
        found.add_script_tag(path=AXE)
        told = found.evaluate(
            "axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa'], resultTypes: ['violations']})"
            ".then((found) => found.violations.map((one) => [one.id, one.nodes[0].html]))"
        )
        assert told == [], section
    context.close()


def test_a_page_with_a_token_asks_for_it_once(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    with serve([flow()], made_up(), Settings(listen="127.0.0.1:0", token_file=file)) as served:
        page.goto(served.url)
        page.get_by_label("Token").fill("not the token at all")
        page.get_by_role("button", name="Look").click()
        expect(page.get_by_role("alert").filter(has_text="this is not the token")).to_be_visible()
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Look").click()
        expect(page.locator("#verdict")).to_contain_text("stopped")
        assert page.evaluate("document.cookie") == ""
        expect(page.get_by_role("link", name="Failover")).to_have_count(0)
        expect(page.get_by_role("button", name="Pause")).to_have_count(0)
        page.get_by_role("button", name="sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()

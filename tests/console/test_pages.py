"""Every page in a browser: by keyboard, on a phone, fresh without reloading, for everybody."""

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import latermq
from console.addresses import PAGES
from support import console_story as shop
from support.broker_process import BrokerProcess
from support.browser import aside, console_process, page_of, serious

PHONE = {"width": 390, "height": 844}
COLOURED = (
    "/?range=7d",
    "/dead/billing",
    "/dead/billing/letters/0",
    "/groups/billing",
    "/pending",
    "/nowhere",
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_shut_out(browser: Browser, url: str, told: str, scheme: Any) -> None:
    """By axe-core: names, roles, contrast, in both colours. On a phone nothing scrolls sideways.

    What differs by colour is on a few pages. What is folded up is looked at, too.
    """
    problems = []
    size = PHONE if scheme == "dark" else {"width": 1280, "height": 900}
    with page_of(browser, url, viewport=size, color_scheme=scheme) as (page, complaints):
        for path in PAGES:
            page.goto(path)
            page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
            if scheme == "light" or path in COLOURED:
                problems += serious(page)
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > size["width"]:
                problems.append(f"{path}: {wide} pixels wide")
        refused = [said for said in complaints if "404" not in said]
    assert problems == []
    assert refused == [], "scripts and styles of strangers, or errors of ours"


def test_pages_stay_fresh_and_choices_stay_chosen(browser: Browser, url: str, told: str) -> None:
    async def bury() -> None:
        async with latermq.connect(told) as mq:
            await mq.send("%DLQ%shipping", b"x", keys=["late-one"])

    aside(bury())
    with page_of(browser, url) as (page, _):
        page.goto("/dead/shipping")
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(1)
        page.evaluate("document.querySelector('nav .count').textContent = '?'")
        page.get_by_role("checkbox", name="Choose letter 0").check()
        expect(page.get_by_text("1 chosen")).to_be_visible()
        aside(bury())
        page.evaluate("document.getElementById('main').dataset.live = '0.2'")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(rows).to_have_count(2)
        expect(page.get_by_role("checkbox", name="Choose letter 0")).to_be_checked()
        expect(page.get_by_role("checkbox", name="Choose letter 1")).not_to_be_checked()
        expect(page.locator("nav .count")).to_have_text(re.compile(r"^\d+$"))


def test_a_page_that_is_open_says_that_the_broker_has_gone(
    browser: Browser, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "data") as broker, ExitStack() as stack:
        url = stack.enter_context(console_process(broker.start().endpoint))
        page, _ = stack.enter_context(page_of(browser, url))
        page.goto("/groups")
        expect(page.locator(".where .dot")).not_to_have_class(re.compile("off"))
        broker.kill()
        page.evaluate("document.getElementById('main').dataset.live = '0.2'")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.locator(".where .dot")).to_have_class(re.compile("off"))
        page.goto("/pending")
        heading = page.get_by_role("heading", name="The broker does not answer")
        expect(heading).to_be_visible()
        expect(page.get_by_text("no connection: connection refused")).to_be_visible()
        broker.start()
        expect(heading).to_be_hidden()
        expect(page.get_by_role("heading", level=1, name="Pending")).to_be_visible()


def test_the_past_is_a_click_away(browser: Browser, url: str, told: str) -> None:
    with page_of(browser, url) as (page, complaints):
        for path in ("/", f"/groups/{shop.GROUP}"):
            page.goto(path)
            page.get_by_role("link", name="24h").press("Enter")
            goes_to(page, r"range=24h$")
            heading = page.get_by_role("heading", level=2, name="The last 24 hours")
            expect(heading).to_be_visible()
            expect(page.get_by_role("link", name="24h")).to_have_attribute("aria-current", "true")
            expect(page.get_by_role("img", name=re.compile("^Lag: .* at most 120"))).to_be_visible()
        assert complaints == []


def test_a_group_is_moved_back_by_keyboard(browser: Browser, url: str, told: str) -> None:
    async def work() -> None:
        await shop.make_topic(told, "returns", queues=1)
        await shop.make_groups(told, "returning")
        async with latermq.connect(told) as mq:
            await shop.send_orders(mq, ["fine"] * 3, topic="returns")
            await shop.work(mq, 3, topic="returns", group="returning")

    aside(work())
    with page_of(browser, url) as (page, complaints):
        page.goto("/groups/returning")
        page.get_by_text("Move it to another time").press("Enter")
        page.get_by_label("To", exact=True).fill("earliest")
        page.keyboard.press("Enter")
        expect(page.get_by_text("3 to be read again, 0 skipped")).to_be_visible()
        page.get_by_role("checkbox", name="Move it").press("Space")
        page.get_by_role("button", name="Move the group").press("Enter")
        expect(page.get_by_text("goes on in returns from offset 0")).to_be_visible()
        goes_to(page, "/groups/returning$")
        page.get_by_text("Change its policy").press("Enter")
        page.get_by_role("textbox", name="Attempts").fill("7")
        page.keyboard.press("Enter")
        expect(page.get_by_text("7 deliveries, then a dead letter")).to_be_visible()

        page.goto("/topics")
        page.get_by_text("Make a topic").press("Enter")
        page.get_by_role("textbox", name="Name", exact=True).fill("of-a-day")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1, name="of-a-day")).to_be_visible()
        page.get_by_text("Change it").press("Enter")
        page.get_by_role("link", name="Delete…").press("Enter")
        page.get_by_label("to say that you are sure").fill("of-a-day")
        page.keyboard.press("Enter")
        expect(page.get_by_text("topic of-a-day deleted")).to_be_visible()
        assert complaints == []


def goes_to(page: Page, pattern: str) -> None:
    """Wait until the page is there, and listens."""
    expect(page).to_have_url(re.compile(pattern))
    expect(page.locator("html.js")).to_have_count(1)


def test_keys(browser: Browser, url: str, told: str) -> None:
    with page_of(browser, url) as (page, complaints):
        page.goto("/")
        goes_to(page, "/$")
        for key in ("g", "d"):
            page.keyboard.press(key)
        goes_to(page, "/dead$")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        goes_to(page, "/dead/.+")
        page.keyboard.press("u")
        goes_to(page, "/dead$")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        page.keyboard.press("/")
        expect(page.get_by_role("searchbox")).to_be_focused()
        page.keyboard.type(shop.GROUP)
        page.keyboard.press("Enter")
        goes_to(page, "/groups/billing$")
        button = page.get_by_role("button", name="Change colours")
        for theme in ("light", "dark"):
            button.click()
            expect(page.locator(f"html[data-theme={theme}]")).to_have_count(1)
        page.reload()
        expect(page.locator("html[data-theme=dark]")).to_have_count(1)
        assert complaints == []


def test_it_works_without_script(browser: Browser, url: str, told: str) -> None:
    with page_of(browser, url, java_script_enabled=False) as (page, _):
        page.goto("/dead/billing")
        page.locator("input[name=offset]").first.check()
        page.get_by_role("button", name="Redrive chosen").click()
        expect(page.get_by_text("1 letter of billing")).to_be_visible()
        page.get_by_role("link", name="Cancel").click()
        expect(page.get_by_role("heading", level=1, name="billing")).to_be_visible()

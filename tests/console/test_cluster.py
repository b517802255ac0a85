"""A cluster in a browser: letters are of all shards, and go from the shard they are in."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import latermq
from support import console_story as shop
from support.browser import aside, console_process, page_of, serious
from support.cluster_process import Machines

LETTERS = 4


@pytest.fixture
def machines(browser: Browser, tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path)
    try:
        machines.start()
        yield machines
    finally:
        machines.stop()


async def bury(endpoint: str) -> None:
    await shop.make_topic(endpoint, shop.TOPIC)
    await shop.make_groups(endpoint, shop.GROUP)
    async with latermq.connect(endpoint) as mq:
        await shop.send_orders(mq, ["comma"] * LETTERS)
        await shop.work(mq, LETTERS * shop.ATTEMPTS)


def test_letters_are_dropped_in_their_shard(browser: Browser, machines: Machines) -> None:
    endpoint = machines.shards[0].endpoint
    aside(bury(endpoint))
    with console_process(endpoint) as url, page_of(browser, url) as (page, complaints):
        page.goto("/dead")
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.locator("td[data-label=Shard]")).to_have_text(["0", "1"])
        assert serious(page) == []
        page.locator("a[href='/dead/billing@1']").first.press("Enter")
        expect(page).to_have_url(re.compile("/dead/billing@1$"))
        page.get_by_role("link", name="Drop all").press("Enter")
        page.get_by_role("checkbox", name="I want them gone for good").press("Space")
        page.get_by_role("radio", name="All").check()
        page.get_by_role("button", name="Drop for good").press("Enter")
        expect(page.locator("[data-state=done]")).to_be_visible()
        page.goto("/dead/billing")
        expect(page).to_have_url(re.compile("/dead/billing@0$"))
        machines.shards[1].kill()
        page.goto("/pending")
        expect(page.get_by_text("What is below is not all")).to_be_visible()
        assert complaints == []

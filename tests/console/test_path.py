"""A stranger's way, click by click: an alert, its signature, one letter, one redrive, the rest.

Recorded: `playwright show-trace .cache/console-path.zip` plays it.
"""

import asyncio
import re
import threading
import time
import zipfile
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, expect

import latermq
from support import console_story as shop
from support.browser import page_of
from support.machine import patient

CLICKS_S_MAX = 60
RECORDING: Final = Path(__file__).resolve().parents[2] / ".cache" / "console-path.zip"


def mend(endpoint: str, count: int) -> None:
    """Run the release that can read 49,90 until it has billed so many orders."""

    async def bill() -> None:
        async with latermq.connect(endpoint) as mq:
            await shop.work(mq, count, charge_one=lambda _: None)

    asyncio.run(bill())


def test_from_an_alert_to_the_last_redrive(browser: Browser, url: str, told: str) -> None:
    began_s = time.monotonic()
    RECORDING.unlink(missing_ok=True)
    with page_of(browser, url, recording=RECORDING) as (page, complaints):
        page.goto("/")
        page.get_by_role("link", name=re.compile("died in billing|dead letters wait")).first.click()
        if page.url.endswith("/dead"):
            page.get_by_role("link", name="billing").click()
        page.get_by_role("link", name="ValueError", exact=True).click()
        expect(page.get_by_role("heading", level=2, name="ValueError")).to_be_visible()
        page.get_by_role("link", name=re.compile("not enough values")).first.click()
        expect(page.get_by_text("Attempt 3", exact=True)).to_be_visible()
        expect(page.get_by_text("console_story.py")).to_be_visible()
        expect(page.get_by_text('"amount": "49,90"')).to_be_visible()
        page.get_by_role("link", name="ValueError").click()

        page.get_by_role("link", name="Redrive one first").click()
        expect(page.get_by_text("30 letters")).to_be_visible()
        page.get_by_role("button", name="Redrive").click()
        expect(page.get_by_text("ready, waits for a consumer")).to_be_visible()
        fixed = threading.Thread(target=mend, args=(told, 30))  # the fix is rolled out
        fixed.start()
        expect(page.get_by_text("done: acknowledged")).to_be_visible()
        expect(page.get_by_text("29 letters are left")).to_be_visible()
        expect(page.get_by_label("At most per second")).to_have_value("50")
        page.get_by_role("button", name="Redrive the rest").click()
        expect(page.locator("[data-changed]")).to_have_text("29")
        expect(page.locator("[data-state=done]")).to_be_visible()
        fixed.join()
        page.get_by_role("link", name="billing").first.click()
        expect(page.get_by_role("link", name="CardExpiredError", exact=True)).to_be_visible()
        expect(page.get_by_role("link", name="ValueError", exact=True)).to_have_count(0)
        assert complaints == []
    assert time.monotonic() - began_s < patient(CLICKS_S_MAX)
    with zipfile.ZipFile(RECORDING) as recorded:
        pictures = [name for name in recorded.namelist() if name.endswith(".jpeg")]
        assert len(pictures) > 10
        assert b"Redrive the rest" in recorded.read("trace.trace")

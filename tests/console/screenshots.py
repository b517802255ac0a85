"""The pictures of the docs: `make screenshots`.

python tests/console/screenshots.py docs/pictures
"""

import asyncio
import linecache
import logging
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from playwright.sync_api import expect

import latermq
from support import console_story
from support.broker_process import BrokerProcess
from support.browser import aside, console_process, executable, launched, page_of

DESK: Final = {"width": 1280, "height": 860}
PHONE: Final = {"width": 390, "height": 780}
LOOK_S: Final = 40  # so long the console watches before the pictures: lines need points
PICTURES: Final[tuple[tuple[str, str, Any, Any], ...]] = (
    ("overview", "/", DESK, "light"),
    ("dead-letters", "/dead/billing", DESK, "light"),
    ("letter", "/dead/billing/letters/0", DESK, "dark"),
    ("pending", "/pending", DESK, "light"),
    ("move", "/groups/billing/reset?topic=orders&to=earliest", DESK, "light"),
    ("phone", "/dead/billing", PHONE, "dark"),
)


def as_an_application(source: Path, name: str) -> ModuleType:
    """Load a module as if its file had that name: so stacks in pictures look like a user's own."""
    text = source.read_text(encoding="utf-8")
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = ModuleType("billing")
    exec(compile(text, name, "exec"), vars(module))
    return module


shop = as_an_application(Path(console_story.__file__), "shop/billing.py")


async def live(endpoint: str) -> None:
    """Send and work for a while, some of it badly, and leave some in a consumer's hands."""
    async with latermq.connect(endpoint) as mq:
        for second in range(LOOK_S):
            kinds = (
                ["fine"] * (6 + second % 5) + ["comma"] * (second > 12) + ["slow"] * (second > 15)
            )
            await shop.send_orders(mq, kinds)
            await shop.work(mq, len(kinds))
            await asyncio.sleep(1)
        consumer = mq.simple_consumer(shop.TOPIC, group="shipping")
        for _ in range(3):
            await consumer.receive(3, invisible=timedelta(minutes=10))


def main() -> None:
    logging.disable(logging.CRITICAL)  # the failures are for the pictures
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    path = executable()
    if path is None:
        sys.exit("make screenshots: no Chromium on this machine: apt-get install chromium")
    with tempfile.TemporaryDirectory() as home, BrokerProcess(Path(home) / "data") as broker:
        endpoint = broker.start().endpoint
        with console_process(endpoint) as url, launched(path) as browser:
            with page_of(browser, url) as (page, _):
                page.goto("/")
            aside(shop.tell(endpoint, comma=23, slow=7, expired=4, fine=60))
            aside(live(endpoint))
            for name, address, size, scheme in PICTURES:
                fields = {"viewport": size, "color_scheme": scheme}
                with page_of(browser, url, **fields) as (page, _):
                    page.goto(address)
                    expect(page.get_by_role("heading", level=1)).to_be_visible()
                    page.screenshot(path=folder / f"{name}.png")


if __name__ == "__main__":
    main()

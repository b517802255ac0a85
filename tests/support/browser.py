"""Chromium, without a window, in front of a console process: for tests and for pictures."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from support.machine import patient

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
WAIT_MS: Final = patient(20.0) * 1_000

Result = TypeVar("Result")


def executable() -> str | None:
    """Where a Chromium of this machine is; None: it has none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def aside(work: Coroutine[Any, Any, Result]) -> Result:
    """Run it to its end in another thread: in this one Playwright's own loop runs."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def serious(page: Page) -> list[str]:
    """Return what axe-core finds serious or worse on a page, what is folded up included."""
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    return [
        f"{page.url}: {each['id']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
        for each in Axe().run(page).response["violations"]
        if each["impact"] in ("serious", "critical")
    ]


@contextmanager
def launched(path: str) -> Iterator[Browser]:
    """Chromium; while it runs, Playwright's loop runs in this thread, so that no other may."""
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        # Inside a container its sandbox needs rights that nobody gives it; our own pages need none.
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def console_process(endpoint: str, *options: str) -> Iterator[str]:
    """A console of its own; its address."""
    command = [sys.executable, "-m", "latermq_cli", "console", "--json"]
    console = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--endpoint", endpoint, *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert console.stdout is not None
    try:
        yield json.loads(console.stdout.readline())["url"]
    finally:
        console.terminate()
        console.wait(patient(30))
        console.stdout.close()


@contextmanager
def page_of(
    browser: Browser, url: str, *, recording: Path | None = None, **fields: Any
) -> Iterator[tuple[Page, list[str]]]:
    """A page in a browser of its own, and what its developer tools complain of.

    Args:
        recording: a file for what happens there: `playwright show-trace FILE` plays it.
    """
    context = browser.new_context(base_url=url, locale="en-GB", timezone_id="UTC", **fields)
    context.set_default_timeout(WAIT_MS)
    if recording is not None:
        context.tracing.start(screenshots=True, snapshots=True)
    page = context.new_page()
    complaints: list[str] = []

    def hear(said: ConsoleMessage) -> None:
        if said.type == "error":
            complaints.append(said.text)

    page.on("console", hear)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    try:
        yield page, complaints
    finally:
        if recording is not None:
            context.tracing.stop(path=recording)
        context.close()

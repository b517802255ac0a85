"""What the console has addresses for, and which of them one can go to just so.

`PAGES` are looked at in one go; pages that something has to be done for are met on a way. Together
they are all there are: `test_every_page_and_verb.py` asks the console itself.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from starlette.routing import compile_path

from latermq_console.routes import routes
from latermq_console.server import opened
from latermq_console.settings import Settings

PAGES: Final = (
    "/?range=7d", "/dead", "/dead/billing", "/dead/billing?q=nothing-like-it",
    "/dead/billing/letters/0", "/dead/billing/change?verb=redrive",
    "/dead/billing/change?verb=drop", "/jobs", "/groups", "/groups/billing", "/topics",
    "/topics/orders", "/topics/orders/delete", "/groups/billing/delete",
    "/groups/billing/reset?topic=orders&to=earliest", "/pending", "/transactions", "/messages",
    "/clients", "/schedules", "/messages?q=A-1003", "/access", "/broker", "/cluster", "/nowhere",
)  # fmt: skip
NO_PAGE: Final = {"/go"}  # it leads on


class Address(NamedTuple):
    """A route, and how its addresses look."""

    route: str
    method: str
    pattern: re.Pattern[str]


async def addresses() -> list[Address]:
    """Ask a console, in the order in which it looks."""
    async with opened(Settings(endpoint="127.0.0.1:1")) as console:
        return [
            Address(each.path, method, compile_path(each.path)[0])
            for each in routes(console)
            for method in sorted(each.methods or ())
            if method != "HEAD"
        ]


def route_of(there: Iterable[Address], url: str, method: str = "GET") -> str:
    """Return the route that answers an address."""
    path = urlsplit(url).path
    return next(each.route for each in there if each.method == method and each.pattern.match(path))

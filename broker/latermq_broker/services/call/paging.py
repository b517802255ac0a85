"""Pages of latermq.v1's listings: how long they may be, and the token that goes on after one.

A token holds where the page ended (a name, a position), so that a listing stays right while things
are made and deleted between two pages. It is opaque to callers.
"""

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from latermq_broker.errors import BadRequestError
from latermq_broker.services.call.names import shown

PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MAX: Final = 1000
_TOKEN_BYTES_MAX: Final = 1024

Row = TypeVar("Row")


def page_size(requested: int) -> int:
    """Count the rows of a page: 0 means the default, more than the most the most.

    Raises:
        BadRequestError: negative.
    """
    if requested < 0:
        raise BadRequestError(f"page size {requested} is negative")
    return min(requested or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)


def page_token(last: str) -> str:
    """Make the token for what comes after `last`; "" when nothing does."""
    return base64.urlsafe_b64encode(last.encode()).decode("ascii").rstrip("=")


def after(token: str) -> str:
    """Read what `page_token` was given; "" for the first page.

    Raises:
        BadRequestError: not a token of ours.
    """
    if len(token) > _TOKEN_BYTES_MAX:
        raise BadRequestError(f"page token {shown(token)} is too long")
    padded = token + "=" * (-len(token) % 4)
    try:
        return base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise BadRequestError(f"page token {shown(token)} is not one of ours") from error


def page_of(
    rows: Iterable[Row], place: Callable[[Row], str], request: Any
) -> tuple[list[Row], str]:
    """Cut the page that a request asks for out of rows in the order of their places; its token.

    Raises:
        BadRequestError: the size or the token.
    """
    start, size = after(request.page_token), page_size(request.page_size)
    following = [row for row in rows if place(row) > start]
    page = following[:size]
    return page, page_token(place(page[-1])) if len(following) > size else ""

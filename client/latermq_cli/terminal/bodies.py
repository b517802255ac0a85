"""Message bodies as a terminal can show them: text where it is UTF-8, else a look at the bytes."""

from typing import Final

from latermq_cli.terminal.table import display_width, plain_lines, wrap
from latermq_text.bodies import DamagedBodyError, unpacked

PREVIEW_BYTES: Final = 32


def decoded(body: bytes, encoding: str) -> tuple[bytes, str]:
    """Undo a body's encoding; return it as it is where that cannot be done, and why, or ""."""
    try:
        return unpacked(body, encoding), ""
    except DamagedBodyError as error:
        return body, str(error)


def text_of(body: bytes) -> str | None:
    """Decode the body as text; None when it is not UTF-8."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def printable_lines(body: bytes) -> list[str]:
    """List the lines to print: the text, or one line with length and first bytes in hex."""
    text = text_of(body)
    return [_preview(body)] if text is None else plain_lines(text)


def body_lines(
    stored: bytes,
    encoding: str,
    width: int,
    *,
    size: str = "",
    lines_max: int | None = None,
    more: str = "--body shows the rest",
) -> list[str]:
    """Lay a body out in lines of at most `width` columns.

    Args:
        size: what is said of its length, beside or above its text.
        lines_max: so many lines are laid out, whatever the body's size; None: all.
        more: what is said where lines are left out.
    """
    body, damage = decoded(stored, encoding)
    if damage:
        return [f"damaged: {damage}", _preview(body)]
    text = text_of(body)
    if text is None:
        return [_preview(body)]
    head = text if lines_max is None else text[: (lines_max + 1) * width]
    lines = [piece for line in plain_lines(head) for piece in wrap(line, width)]
    if lines_max is not None and (len(lines) > lines_max or len(head) < len(text)):
        lines = [*lines[:lines_max], f"… {more}"]
    if not size:
        return lines
    if len(lines) == 1 and display_width(lines[0]) + len(size) + 4 <= width:
        return [f"{lines[0]}  ({size})"]
    return [size, *lines]


def _preview(body: bytes) -> str:
    more = " …" if len(body) > PREVIEW_BYTES else ""
    return f"{len(body):,} bytes, not text: {body[:PREVIEW_BYTES].hex(' ')}{more}"

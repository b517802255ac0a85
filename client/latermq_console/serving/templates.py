"""The templates, what they may call, and the static files beside them."""

import hashlib
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from latermq_console import clock
from latermq_console.drawing import charts, words
from latermq_console.drawing.links import query, segment
from latermq_text.attempts import UNLIMITED, allowed
from latermq_text.durations import format_duration

PACKAGE: Final = "latermq_console"
MEDIA_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def environment() -> Environment:
    """Return the environment in which every page is made: everything is escaped."""
    made = Environment(
        loader=PackageLoader(PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        number=words.number,
        allowed=allowed,
        short=words.short,
        rate=words.rate,
        size=words.size,
        duration=format_duration,
        when=words.when,
        clock_time=words.clock_time,
        ago=_ago,
        plain=words.plain,
        lines=words.lines_of,
        breakable=words.breakable,
        seg=segment,
    )
    made.globals.update(
        counted=words.counted, query=query, spark=charts.spark, asset=asset,
        getattr=getattr, UNLIMITED=UNLIMITED,
    )  # fmt: skip
    return made


@cache
def _static() -> dict[str, bytes]:
    """Return the contents of the static files: few, small, and read once."""
    return {file.name: file.read_bytes() for file in (files(PACKAGE) / "static").iterdir()}


async def static_file(request: Request) -> Response:
    """Answer with a static file."""
    name = request.path_params["name"]
    if name not in _static():
        return PlainTextResponse("There is no such file.\n", 404)
    return Response(_static()[name], media_type=MEDIA_TYPES[name.rpartition(".")[2]])


@cache
def asset(name: str) -> str:
    """Return the address of a static file, which changes with the file."""
    return f"/static/{name}?v={hashlib.sha256(_static()[name]).hexdigest()[:12]}"


def _ago(ms: int) -> Any:
    return words.ago(ms, clock.now_ms())

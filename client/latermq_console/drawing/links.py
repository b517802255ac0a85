"""Addresses of our own pages."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode


def segment(name: str) -> str:
    """Write a name as one segment of a path: a slash in a name is part of the name."""
    return quote(name, safe="@")


def query(values: Mapping[str, Any] | None = None, **more: Any) -> str:
    """Write a query string with its `?`, of what is set; "" for none."""
    pairs = [(k, v) for k, v in {**(values or {}), **more}.items() if v not in (None, "", 0)]
    return f"?{urlencode(pairs)}" if pairs else ""

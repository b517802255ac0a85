"""The static table (RFC 7541 appendix A) and the dynamic one.

Indices: 1 to 61 static, 62 the newest dynamic entry.
"""

from typing import Final

from latermq_h2.hpack.fields import Field, field

_STATIC: Final = """
:authority
:method GET
:method POST
:path /
:path /index.html
:scheme http
:scheme https
:status 200
:status 204
:status 206
:status 304
:status 400
:status 404
:status 500
accept-charset
accept-encoding gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate
"""


def _static_entries() -> tuple[Field | None, ...]:
    entries: list[Field | None] = [None]  # there is no index 0
    for line in _STATIC.strip().splitlines():
        name, _, value = line.partition(" ")
        entries.append(field(name.encode(), value.encode()))
    return tuple(entries)


STATIC: Final = _static_entries()
STATIC_COUNT: Final = len(STATIC) - 1
assert STATIC_COUNT == 61


class DynamicTable:
    """The entries that blocks added, oldest first."""

    __slots__ = ("entries", "size", "size_max")

    def __init__(self, size_max: int) -> None:
        self.entries: list[Field] = []
        self.size = 0
        self.size_max = size_max

    def add(self, entry: Field) -> None:
        """Add an entry, evicting first; one larger than the table empties it and is not kept."""
        size = entry[2]
        self._shrink_to(self.size_max - size)
        if size <= self.size_max:
            self.entries.append(entry)
            self.size += size

    def resize(self, size_max: int) -> None:
        self.size_max = size_max
        self._shrink_to(size_max)

    def _shrink_to(self, room: int) -> None:
        if self.size <= room:
            return
        count = 0
        for entry in self.entries:
            self.size -= entry[2]
            count += 1
            if self.size <= room:
                break
        del self.entries[:count]

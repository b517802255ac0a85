"""Every attack, by family; numbers are those of the table in docs/security.md."""

from typing import Final

from abuse.attacks import (
    calls,
    fields,
    frames,
    patterns,
    readers,
    requests,
    rights,
    telemetry,
    text,
    tls,
)
from abuse.siege import Case

FAMILIES: Final = {
    "requests": requests.CASES,
    "fields": fields.CASES,
    "calls": calls.CASES,
    "tls": tls.CASES,
    "patterns": patterns.CASES,
    "telemetry": telemetry.CASES,
    "readers": readers.CASES,
    "frames": frames.CASES,
    "rights": rights.CASES,
    "text": text.CASES,
}
CASES: Final[tuple[Case, ...]] = tuple(case for family in FAMILIES.values() for case in family)

# Not asserted yet: what answers them is not here.
AWAITED: Final[frozenset[str]] = frozenset(
    {
        "gzip-whole-signed", "incomplete-signed", "unended-signed", "telemetry-streams",
        "telemetry-streams-signed", "unknown-settings", "settings-topics", "settings-user-agent",
        *(case.name for case in rights.CASES),
    }
)  # fmt: skip

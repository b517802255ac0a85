"""Every attack, by family; numbers are those of the table in docs/security.md."""

from typing import Final

from abuse.attacks import (
    calls,
    churn,
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
    "churn": churn.CASES,
    "patterns": patterns.CASES,
    "telemetry": telemetry.CASES,
    "readers": readers.CASES,
    "frames": frames.CASES,
    "rights": rights.CASES,
    "text": text.CASES,
}
CASES: Final[tuple[Case, ...]] = tuple(case for family in FAMILIES.values() for case in family)

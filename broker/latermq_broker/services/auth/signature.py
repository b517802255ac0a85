"""What a call claims about its caller, and whether the claim is true. Pure.

    authorization: MQv2-HMAC-SHA1 Credential=<access key>[/region[/service]],
                   SignedHeaders=x-mq-date-time, Signature=<hex, either case>
    Signature    = HMAC-SHA1(key: the secret, data: the bytes of the header x-mq-date-time)

The date is all that is signed. Clients write it as 20240131T235959Z, most of them in their local
time in spite of the Z, or (Rust) as 2024-01-31T23:59:59.123456789+08:00; so the first form is taken
for any time it may be in any time zone, the second for what it says.
"""

import binascii
import hmac
import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from latermq_broker.errors import NotSignedError, UnauthorizedError
from latermq_broker.services.call.names import shown

AUTHORIZATION_HEADER: Final = "authorization"
DATE_HEADER: Final = "x-mq-date-time"
ALGORITHM: Final = "MQv2-HMAC-SHA1"
HEADER_CHARACTERS_MAX: Final = 1_024
SIGNATURE_BYTES: Final = 20

_COMPACT: Final = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})Z")
_RFC3339: Final = re.compile(r"([0-9-]{10}T[0-9:]{8})(?:\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})")
_WEST_MS: Final = 12 * 3_600_000  # the zones that are farthest from UTC
_EAST_MS: Final = 14 * 3_600_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Claim(NamedTuple):
    access_key: str
    signature: bytes
    date: str


def claim_of(authorization: str | None, date: str | None) -> Claim:
    """Read who the headers say signed a call.

    Raises:
        NotSignedError: no signature, or not one of this form.
    """
    if not authorization:
        raise NotSignedError("the call is not signed: an access key and its secret are needed")
    if len(authorization) > HEADER_CHARACTERS_MAX:
        raise NotSignedError(f"authorization is longer than {HEADER_CHARACTERS_MAX} characters")
    algorithm, _, rest = authorization.partition(" ")
    if algorithm != ALGORITHM:
        raise NotSignedError(f"authorization has the algorithm {shown(algorithm)}, not {ALGORITHM}")
    parts = {}
    for part in rest.split(","):
        name, _, value = part.strip().partition("=")
        parts[name] = value
    access_key = parts.get("Credential", "").partition("/")[0]
    if not access_key:
        raise NotSignedError("authorization names no access key")
    try:
        signature = binascii.unhexlify(parts.get("Signature", ""))
    except (binascii.Error, ValueError):
        signature = b""
    if len(signature) != SIGNATURE_BYTES:
        raise NotSignedError("authorization holds no signature of 40 hex digits")
    if not date or len(date) > HEADER_CHARACTERS_MAX:
        raise NotSignedError(f"the header {DATE_HEADER}, which is what is signed, is missing")
    return Claim(access_key, signature, date)


def key_of(authorization: str | None) -> str:
    """Read the access key that a header names, whatever else is in it; "": none."""
    rest = (authorization or "")[:HEADER_CHARACTERS_MAX].partition("Credential=")[2]
    return rest.partition(",")[0].partition("/")[0].strip()


def sign(secret: str, date: str) -> bytes:
    return hmac.digest(secret.encode(), date.encode(), "sha1")


def is_signed_with(claim: Claim, secret: str) -> bool:
    """Check a signature; it takes as long for a wrong signature as for a right one."""
    return hmac.compare_digest(sign(secret, claim.date), claim.signature)


def span_ms(date: str) -> tuple[int, int]:
    """Find the earliest and the latest instant that the date can mean, in ms since the epoch.

    Raises:
        UnauthorizedError: neither form, or no such day.
    """
    try:
        compact = _COMPACT.fullmatch(date)
        if compact is not None:  # strptime takes ten times as long
            year, month, day, hour, minute, second = map(int, compact.groups())
            stamp = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
            at_ms = (stamp - _EPOCH) // timedelta(milliseconds=1)
            return at_ms - _EAST_MS, at_ms + _WEST_MS
        match = _RFC3339.fullmatch(date)
        if match is not None:
            stamp = datetime.fromisoformat(match[1] + match[2].replace("Z", "+00:00"))
            at_ms = (stamp - _EPOCH) // timedelta(milliseconds=1)
            return at_ms, at_ms + 999
    except (ValueError, OverflowError):
        pass
    raise UnauthorizedError(
        f"{DATE_HEADER} {shown(date)} is no date such as 20240131T235959Z or "
        "2024-01-31T23:59:59+00:00"
    )

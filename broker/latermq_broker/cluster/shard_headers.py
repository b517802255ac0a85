"""Headers between shards: who sent a call on, and the signature of a shard's own calls. Pure."""

import hmac
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from latermq_broker.config.auth import AuthConfig
from latermq_broker.services.auth.signature import (
    ALGORITHM,
    AUTHORIZATION_HEADER,
    DATE_HEADER,
    sign,
)
from latermq_broker.services.call.handler import Call

FORWARDED: Final = "x-latermq-forwarded"  # by which shard
MARK: Final = "x-latermq-shard"  # HMAC that only shards send; see `shard_mark`
_SHARD: Final = re.compile("[0-9]{1,4}")


def is_forwarded(call: Call) -> bool:
    """Tell whether another shard sent the call on."""
    return call.metadata(FORWARDED) is not None


def sender_of(call: Call) -> int:
    """Give the shard that sent the call on; 0: none did, or it is not said in digits."""
    sender = call.metadata(FORWARDED)
    return int(sender) if sender is not None and _SHARD.fullmatch(sender) else 0


def signature_headers(config: AuthConfig, wall_ms: int) -> list[tuple[str, str]]:
    """Make the headers that sign a call, as the configuration's admin; none where none is signed.

    Args:
        wall_ms: the time of day.
    """
    if not config.enabled:
        return []
    instant = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=wall_ms)
    date = instant.isoformat(timespec="seconds")
    signature = sign(config.root_secret_key, date).hex()
    claim = f"Credential={config.root_access_key}, SignedHeaders={DATE_HEADER}"
    return [
        (DATE_HEADER, date),
        (AUTHORIZATION_HEADER, f"{ALGORITHM} {claim}, Signature={signature}"),
        (MARK, shard_mark(config.root_secret_key, date)),
    ]


def shard_mark(secret: str, date: str) -> str:
    """Return the mark of a shard's own call, in hex, made of the cluster's secret and the date.

    The mark needs the cluster's secret itself: neither an admin's signature nor recorded headers of
    an admin's call produce it.
    """
    return hmac.digest(secret.encode(), b"latermq.v1 shard " + date.encode(), "sha256").hex()


def is_a_shards(call: Call, config: AuthConfig) -> bool:
    """Tell whether a shard of this cluster made the call itself; True where none is signed."""
    if not config.enabled:
        return True
    date, mark = call.metadata(DATE_HEADER) or "", call.metadata(MARK) or ""
    expected = shard_mark(config.root_secret_key, date)
    return hmac.compare_digest(expected.encode(), mark.encode())

"""Headers between shards: who sent a call on, and the signature of a shard's own calls. Pure."""

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
    ]

"""How shards sign their own calls to each other: as the configuration's admin. Pure."""

from datetime import UTC, datetime, timedelta

from latermq_broker.config.auth import AuthConfig
from latermq_broker.services.auth.signature import (
    ALGORITHM,
    AUTHORIZATION_HEADER,
    DATE_HEADER,
    sign,
)


def signature_headers(config: AuthConfig, wall_ms: int) -> list[tuple[str, str]]:
    """Make the headers that sign a call; none where calls are not signed.

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

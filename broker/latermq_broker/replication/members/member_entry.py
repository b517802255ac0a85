"""A broker's entry in the members topic: what it says of itself.

    key    HOST:DIRECTORY, which no other broker has
    value  {"address": "10.0.0.2:8081", "shard": 0, "role": "standby", "epoch": 4,
            "position": 81920, "lag_entries": 3, "version": "1.4.0",
            "ready": true, "checkpoint": 65536}; none: it ended in order

When it was said the topic knows. Fields that a version does not know it leaves out; the last two
are a standby's, and earlier versions had none.
"""

import json
from typing import Final

from latermq_broker.observability.replication_figures import Member

MEMBER_BYTES_MAX: Final = 4_096  # of a key, and of a value
NUMBER_MAX: Final = (1 << 63) - 1


def encode_name(name: str) -> bytes:
    """Encode a broker's name as a key; file names need not be text."""
    return name.encode(errors="backslashreplace")


def encode_member(member: Member) -> bytes:
    """Encode it; `decode_member` gives it back."""
    facts = member._asdict().items()
    return json.dumps({name: fact for name, fact in facts if fact is not None}).encode()


def decode_member(key: bytes, value: bytes) -> tuple[str, Member]:
    """Decode a name and what its broker said.

    Raises:
        ValueError: it is nothing that this version reads.
    """
    if max(len(key), len(value)) > MEMBER_BYTES_MAX:
        raise ValueError("longer than any entry")
    try:
        facts = json.loads(value)
        return key.decode(), Member(
            address=_text(facts["address"]),
            shard=_number(facts["shard"]),
            role=_text(facts["role"]),
            epoch=_number(facts["epoch"]),
            position=_number(facts["position"]),
            lag_entries=_number(facts["lag_entries"]),
            version=_text(facts["version"]),
            ready=_truth(facts["ready"]) if "ready" in facts else None,
            checkpoint=_number(facts["checkpoint"]) if "checkpoint" in facts else None,
        )
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"no entry: {error!r}") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    value.encode()  # half a character is none
    return value


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= NUMBER_MAX:
        raise TypeError(value)
    return value

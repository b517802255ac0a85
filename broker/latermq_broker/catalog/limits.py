"""Limits of clients and consumer groups: what is set, and what holds for one of them.

Owns the table in memory. It is changed only by LIMIT records, live and in replay alike.
"""

import json
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Final

EVERY: Final = "*"  # the name that stands for each one without a limit of its own
FIELDS: Final = ("parked_polls", "in_flight", "sends_per_s", "bytes_per_s")


class Scope(IntEnum):
    """Numbers are latermq.v1.Limit.Scope's."""

    CLIENT = 1
    GROUP = 2
    USER = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """0: this entry does not limit it."""

    scope: Scope
    name: str
    parked_polls: int = 0
    in_flight: int = 0
    sends_per_s: int = 0
    bytes_per_s: int = 0
    changed_ms: int = 0

    @property
    def key(self) -> tuple[Scope, str]:
        return self.scope, self.name


def encode_limit(limit: Limit) -> bytes:
    """Encode the JSON body of a LIMIT record that puts a limit."""
    return json.dumps(asdict(limit), separators=(",", ":"), sort_keys=True).encode()


def decode_limit(body: bytes) -> Limit:
    fields = json.loads(body)
    return Limit(**{**fields, "scope": Scope(fields["scope"])})


class Limits:
    """All that are set. `polls`, `in_flight` and `sends`: whether anything of the kind is."""

    def __init__(self) -> None:
        self._limits: dict[tuple[Scope, str], Limit] = {}
        self.version = 0  # another one after each change
        self.parts = 1  # brokers that the limits are divided among
        self.polls = self.in_flight = self.sends = False

    def __len__(self) -> int:
        return len(self._limits)

    def get(self, scope: Scope, name: str) -> Limit | None:
        return self._limits.get((scope, name))

    def all(self) -> list[Limit]:
        """Return the limits, clients' first, by name."""
        return [self._limits[key] for key in sorted(self._limits)]

    def bound(self, scope: Scope, name: str, field: str) -> int:
        """Find what holds for one here: its own limit, else that of EVERY; 0: unlimited.

        Of several brokers each has its part, at least 1.
        """
        for known in (name, EVERY):
            limit = self._limits.get((scope, known))
            if limit is not None and (most := int(getattr(limit, field))):
                return -(-most // self.parts)
        return 0

    def put(self, limit: Limit) -> None:
        self._limits[limit.key] = limit
        self._changed()

    def remove(self, scope: Scope, name: str) -> None:
        self._limits.pop((scope, name), None)
        self._changed()

    def _changed(self) -> None:
        known = self._limits.values()
        self.version += 1
        self.polls = any(limit.parked_polls for limit in known)
        self.in_flight = any(limit.in_flight for limit in known)
        self.sends = any(limit.sends_per_s or limit.bytes_per_s for limit in known)

    def snapshot(self) -> bytes:
        """Encode a checkpoint's section; empty without limits."""
        return b"\n".join(map(encode_limit, self.all()))

    def restore(self, section: bytes) -> None:
        for line in section.splitlines():
            self.put(decode_limit(line))

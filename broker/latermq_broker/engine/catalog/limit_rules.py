"""Limits of clients and groups: set, unset, list. What they bound is counted by the services."""

from dataclasses import replace
from typing import Final

from latermq_broker.catalog.limits import FIELDS, Limit, Limits, Scope, encode_limit
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import BadRequestError, NotFoundError, TooManyRequestsError
from latermq_broker.store.records.change_records import PUT, REMOVE, ChangePayload
from latermq_broker.store.records.record import RecordType

LIMITS_COUNT_MAX: Final = 10_000
LIMIT_MAX: Final = 1 << 40
_NOT_OF: Final = {
    Scope.CLIENT: ("in_flight",),
    Scope.USER: ("in_flight",),
    Scope.GROUP: ("sends_per_s", "bytes_per_s"),
}


class LimitAdmin:
    def __init__(self, state: EngineState, journal: Journal) -> None:
        self._state = state
        self._journal = journal

    @property
    def table(self) -> Limits:
        return self._state.limits

    def set(self, wanted: Limit, now_ms: int) -> Limit:
        """Replace what is above 0; the rest stays.

        Raises:
            BadRequestError: nothing is set, out of bounds, or not of this scope.
            TooManyRequestsError: LIMITS_COUNT_MAX others are set.
        """
        given = {field: int(getattr(wanted, field)) for field in FIELDS}
        for field, value in given.items():
            if not 0 <= value <= LIMIT_MAX:
                raise BadRequestError(f"{field} {value} is not within 0 to {LIMIT_MAX}")
            if value and field in _NOT_OF[wanted.scope]:
                other = "client or user" if wanted.scope is Scope.GROUP else "group"
                raise BadRequestError(
                    f"{field} is a limit of a {other}, not of a {wanted.scope.name.lower()}"
                )
        if not any(given.values()):
            raise BadRequestError("no limit above 0 is given")
        known = self.table.get(wanted.scope, wanted.name)
        if known is None and len(self.table) >= LIMITS_COUNT_MAX:
            raise TooManyRequestsError(f"not set: {LIMITS_COUNT_MAX} limits are set already")
        before = known or Limit(scope=wanted.scope, name=wanted.name)
        changed = replace(
            before,
            parked_polls=wanted.parked_polls or before.parked_polls,
            in_flight=wanted.in_flight or before.in_flight,
            sends_per_s=wanted.sends_per_s or before.sends_per_s,
            bytes_per_s=wanted.bytes_per_s or before.bytes_per_s,
        )
        if changed != known:
            changed = replace(changed, changed_ms=self._state.wall.at(now_ms))
            payload = ChangePayload(PUT, encode_limit(changed))
            self._journal.write(RecordType.LIMIT, payload, now_ms)
        return changed

    def copy(self, limit: Limit, now_ms: int) -> None:
        """Have this very limit, as another broker has it."""
        if self.table.get(limit.scope, limit.name) != limit:
            self._journal.write(RecordType.LIMIT, ChangePayload(PUT, encode_limit(limit)), now_ms)

    def unset(self, scope: Scope, name: str, now_ms: int) -> None:
        """Remove all limits of this client or group. Raises NotFoundError: none is set."""
        known = self.table.get(scope, name)
        if known is None:
            raise NotFoundError(f"no limit of {scope.name.lower()} {name} is set")
        payload = ChangePayload(REMOVE, encode_limit(known))
        self._journal.write(RecordType.LIMIT, payload, now_ms)

    def in_flight(self, group_name: str) -> int:
        """Count the messages that the group holds leased, of all topics."""
        group = self._state.catalog.group(group_name)
        return 0 if group is None else self._state.leased.get(group.id, 0)

"""Users: make, alter, delete, grant, revoke. Texts are checked by the edge, secrets made there."""

from collections.abc import Sequence
from dataclasses import replace

from latermq_broker.catalog.access import (
    GRANTS_MAX,
    USERS_MAX,
    Kind,
    Right,
    RightsOn,
    User,
    encode_user,
)
from latermq_broker.engine.journal.journal import Journal
from latermq_broker.engine.state.state import EngineState
from latermq_broker.errors import BadRequestError, NotFoundError, TooManyRequestsError
from latermq_broker.store.records.change_records import PUT, REMOVE, ChangePayload
from latermq_broker.store.records.record import RecordType


class UserAdmin:
    def __init__(self, state: EngineState, journal: Journal) -> None:
        self._state = state
        self._journal = journal

    @property
    def version(self) -> int:
        """Return another number after every change; until then findings about users hold."""
        return self._state.users.version

    def find(self, access_key: str) -> User | None:
        return self._state.users.get(access_key)

    def get(self, access_key: str) -> User:
        """Return the user. Raises NotFoundError."""
        user = self._state.users.get(access_key)
        if user is None:
            raise NotFoundError(f"there is no user {access_key}")
        return user

    def all(self) -> list[User]:
        """List the users by access key."""
        return self._state.users.all()

    def create(self, access_key: str, secret: str, *, admin: bool, now_ms: int) -> User:
        """Make a user. Raises BadRequestError: it exists; TooManyRequestsError: USERS_MAX exist."""
        if self._state.users.get(access_key) is not None:
            raise BadRequestError(f"user {access_key} exists; rotate it for a new secret")
        if len(self._state.users) >= USERS_MAX:
            raise TooManyRequestsError(f"user {access_key} not created: {USERS_MAX} is the limit")
        at_ms = self._state.wall.at(now_ms)
        user = User(
            access_key=access_key, secret=secret, admin=admin, created_ms=at_ms, rotated_ms=at_ms
        )
        return self._put(user, now_ms)

    def alter(
        self, access_key: str, *, admin: bool | None, disabled: bool | None, now_ms: int
    ) -> User:
        """Alter the user; None leaves as it is. Raises NotFoundError."""
        user = self.get(access_key)
        changed = replace(
            user,
            admin=user.admin if admin is None else admin,
            disabled=user.disabled if disabled is None else disabled,
        )
        return user if changed == user else self._put(changed, now_ms)

    def rotate(self, access_key: str, secret: str, now_ms: int) -> User:
        """Replace the secret; the old one is worth nothing from now on. Raises NotFoundError."""
        at_ms = self._state.wall.at(now_ms)
        return self._put(replace(self.get(access_key), secret=secret, rotated_ms=at_ms), now_ms)

    def delete(self, access_key: str, now_ms: int) -> None:
        """Delete the user. Raises NotFoundError."""
        self.get(access_key)
        payload = ChangePayload(REMOVE, access_key.encode())
        self._journal.write(RecordType.ACCESS, payload, now_ms)

    def grant(
        self, access_key: str, kind: Kind, pattern: str, rights: frozenset[Right], now_ms: int
    ) -> User:
        """Grant rights on one pattern; see `grant_all`."""
        return self.grant_all(access_key, [(kind, pattern, rights)], now_ms)

    def grant_all(self, access_key: str, grants: Sequence[RightsOn], now_ms: int) -> User:
        """Grant all of these rights, or none.

        Raises NotFoundError; BadRequestError: the user would have more than GRANTS_MAX grants.
        """
        changed = user = self.get(access_key)
        for kind, pattern, rights in grants:
            changed = changed.granted(kind, pattern, rights)
        if len(changed.grants) > GRANTS_MAX:
            raise BadRequestError(f"user {access_key} has {GRANTS_MAX} grants, which is the most")
        return user if changed == user else self._put(changed, now_ms)

    def revoke(
        self, access_key: str, kind: Kind, pattern: str, rights: frozenset[Right], now_ms: int
    ) -> User:
        """Revoke rights on one pattern; see `revoke_all`."""
        return self.revoke_all(access_key, [(kind, pattern, rights)], now_ms)

    def revoke_all(self, access_key: str, grants: Sequence[RightsOn], now_ms: int) -> User:
        """Revoke all of these rights, or none.

        Raises NotFoundError: no such user, or one of these very patterns has none of its rights.
        """
        changed = user = self.get(access_key)
        for kind, pattern, rights in grants:
            if user.revoked(kind, pattern, rights) == user:
                raise NotFoundError(
                    f"user {access_key} has none of these rights on {kind.value} {pattern}"
                )
            changed = changed.revoked(kind, pattern, rights)
        return self._put(changed, now_ms)

    def copy(self, user: User, now_ms: int) -> User:
        """Have this very user, as another broker has it."""
        return user if self._state.users.get(user.access_key) == user else self._put(user, now_ms)

    def _put(self, user: User, now_ms: int) -> User:
        payload = ChangePayload(PUT, encode_user(user))
        self._journal.write(RecordType.ACCESS, payload, now_ms)
        return user

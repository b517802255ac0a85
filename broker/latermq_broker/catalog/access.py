"""Users and what they may do: which right on which topics and groups.

Owns the in-memory list of users. It is changed only by ACCESS records, live and in replay alike.
Rights are only ever given, never denied: what no grant of a user covers, the user may not do. An
admin may do everything.

The secret is the key of an HMAC that clients compute, so it is stored as it is: who reads the data
directory can act as any user. It is in no `repr`, no dump and no answer but the one that made it.
"""

import json
import re
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

GRANTS_MAX: Final = 256  # of one user
USERS_MAX: Final = 10_000
ALL: Final = "*"

# Topic and group names, and at the end, for a prefix, one `*`.
_PATTERN: Final = re.compile(r"(?:[%|a-zA-Z0-9_-]+\*?|\*)")
PATTERN_CHARACTERS_MAX: Final = 128
_KEPT_PREFIX: Final = "%"  # %DLQ%group, %RETRY%group: covered only by patterns that say so


class Right(StrEnum):
    PUB = "pub"  # send to a topic
    SUB = "sub"  # receive from a topic; receive as a group, settle, heartbeat
    BROWSE = "browse"  # see what is there: messages of a topic, dead letters and waits of a group
    BODY = "body"  # with `browse`: their bodies too
    REDRIVE = "redrive"  # send a group's dead letters back, or drop them
    PURGE = "purge"  # take delayed messages back or move their time; reset a group


class Kind(StrEnum):
    TOPIC = "topic"
    GROUP = "group"


RIGHTS_OF: Final = {
    Kind.TOPIC: (Right.PUB, Right.SUB, Right.BROWSE, Right.BODY, Right.PURGE),
    Kind.GROUP: (Right.SUB, Right.BROWSE, Right.BODY, Right.REDRIVE, Right.PURGE),
}


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """Rights on every topic, or every group, whose name the pattern covers."""

    kind: str  # Kind's value
    pattern: str
    rights: tuple[str, ...]  # Right's values, sorted


RightsOn = tuple[Kind, str, frozenset[Right]]  # of a pattern of topics or groups


def covers(pattern: str, name: str) -> bool:
    """Tell whether a pattern covers a name: `orders` itself, `orders-*` what begins so, `*` all.

    Names users may not choose (%DLQ%group) are covered only by a pattern that begins as they do.
    """
    if not pattern.endswith(ALL):
        return pattern == name
    if name.startswith(_KEPT_PREFIX) and not pattern.startswith(_KEPT_PREFIX):
        return False
    return name.startswith(pattern[:-1])


def is_pattern(text: str) -> bool:
    return len(text) <= PATTERN_CHARACTERS_MAX and _PATTERN.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    access_key: str
    secret: str = field(repr=False)
    admin: bool = False
    disabled: bool = False
    created_ms: int = 0
    rotated_ms: int = 0  # when the secret was last made
    grants: tuple[Grant, ...] = ()  # sorted; one per kind and pattern

    def may(self, right: Right, kind: Kind, name: str) -> bool:
        """Tell whether an enabled user may; `*` as the name asks for all that users may choose."""
        if self.admin:
            return True
        for grant in self.grants:  # a plain loop: it runs for every call
            if right in grant.rights and kind == grant.kind and covers(grant.pattern, name):
                return True
        return False

    def granted(self, kind: Kind, pattern: str, rights: frozenset[Right]) -> "User":
        """Return the user with these rights on the pattern, too."""
        return self._changed(kind, pattern, self._rights(kind, pattern) | rights)

    def revoked(self, kind: Kind, pattern: str, rights: frozenset[Right]) -> "User":
        """Return the user without these rights on this very pattern; other patterns stay."""
        return self._changed(kind, pattern, self._rights(kind, pattern) - rights)

    def _rights(self, kind: Kind, pattern: str) -> frozenset[Right]:
        for grant in self.grants:
            if (grant.kind, grant.pattern) == (kind.value, pattern):
                return frozenset(map(Right, grant.rights))
        return frozenset()

    def _changed(self, kind: Kind, pattern: str, rights: frozenset[Right]) -> "User":
        others = [
            grant for grant in self.grants if (grant.kind, grant.pattern) != (kind.value, pattern)
        ]
        if rights:
            values = tuple(sorted(right.value for right in rights))
            others.append(Grant(kind.value, pattern, values))
        return replace(self, grants=tuple(sorted(others)))


def encode_user(user: User) -> bytes:
    """Encode the JSON body of an ACCESS record that puts a user, its secret included."""
    return json.dumps(asdict(user), separators=(",", ":"), sort_keys=True).encode()


def decode_user(body: bytes) -> User:
    return _user(json.loads(body))


def _user(fields: dict[str, Any]) -> User:
    grants = tuple(
        Grant(grant["kind"], grant["pattern"], tuple(grant["rights"])) for grant in fields["grants"]
    )
    return User(**{**fields, "grants": grants})


class Users:
    """All stored users, by access key."""

    def __init__(self) -> None:
        self._users: dict[str, User] = {}
        self.version = 0  # another one after every change

    def __len__(self) -> int:
        return len(self._users)

    def get(self, access_key: str) -> User | None:
        return self._users.get(access_key)

    def all(self) -> list[User]:
        """Return the users by access key."""
        return sorted(self._users.values(), key=lambda user: user.access_key)

    def put(self, user: User) -> None:
        self._users[user.access_key] = user
        self.version += 1

    def remove(self, access_key: str) -> None:
        self._users.pop(access_key, None)
        self.version += 1

    def snapshot(self) -> bytes:
        """Encode the checkpoint section `users`; empty without users."""
        if not self._users:
            return b""
        users = [asdict(user) for user in self.all()]
        return json.dumps(users, separators=(",", ":"), sort_keys=True).encode()

    def restore(self, section: bytes) -> None:
        for fields in json.loads(section) if section else ():
            self.put(_user(fields))

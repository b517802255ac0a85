"""Users and rights against a set of triples, with restarts by replay and by checkpoint anywhere."""

from collections.abc import Iterable
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from latermq_broker.catalog.access import RIGHTS_OF, Kind, Right
from latermq_broker.config.config import Config, StoreConfig
from latermq_broker.engine.engine import Engine
from latermq_broker.errors import BadRequestError, NotFoundError
from latermq_broker.store.store import Store
from support.memory_files import MemoryFiles

CONFIG = Config(store=StoreConfig(segment_bytes=512 << 10, message_body_bytes_max=4 << 10))
KEYS = ("ann", "bob")
PATTERNS = ("*", "a", "a*", "ab", "ab*", "%a*", "b*")
NAMES = ("a", "ab", "abc", "b", "", "%a", "%b", "*")

Triple = tuple[Kind, str, Right]

keys = st.sampled_from(KEYS)
kinds = st.sampled_from(Kind)
patterns = st.sampled_from(PATTERNS)
some_rights = st.frozensets(st.sampled_from(Right), min_size=1)


def matches(pattern: str, name: str) -> bool:
    """Said again, as plainly as it can be said."""
    if "*" not in pattern:
        return name == pattern
    start = pattern.replace("*", "")
    if name[:1] == "%" and start[:1] != "%":
        return False
    return name[: len(start)] == start


class AccessMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.now_ms = 1_700_000_000_000
        self.model: dict[str, tuple[str, bool, bool, set[Triple]]] = {}
        self.engine = self.open()

    def teardown(self) -> None:
        self.engine.abandon()

    def open(self) -> Engine:
        store = Store.open(Path("/data"), CONFIG.store, self.files, self.now_ms)
        return Engine.open(store, CONFIG, self.now_ms)

    @rule(key=keys, secret=st.sampled_from(("one-secret", "two-secret")), admin=st.booleans())
    def create(self, key: str, secret: str, admin: bool) -> None:
        try:
            self.engine.users.create(key, secret, admin=admin, now_ms=self.now_ms)
        except BadRequestError:
            assert key in self.model
        else:
            assert key not in self.model
            self.model[key] = (secret, admin, False, set())

    @rule(key=keys)
    def delete(self, key: str) -> None:
        self.change(key, lambda: self.engine.users.delete(key, self.now_ms))
        self.model.pop(key, None)

    @rule(key=keys, disabled=st.booleans(), admin=st.booleans())
    def alter(self, key: str, disabled: bool, admin: bool) -> None:
        users = self.engine.users
        self.change(
            key, lambda: users.alter(key, admin=admin, disabled=disabled, now_ms=self.now_ms)
        )
        if key in self.model:
            self.model[key] = (self.model[key][0], admin, disabled, self.model[key][3])

    @rule(key=keys)
    def rotate(self, key: str) -> None:
        self.change(key, lambda: self.engine.users.rotate(key, "new-secret", self.now_ms))
        if key in self.model:
            self.model[key] = ("new-secret", *self.model[key][1:])

    @rule(key=keys, kind=kinds, pattern=patterns, rights=some_rights)
    def grant(self, key: str, kind: Kind, pattern: str, rights: Iterable[Right]) -> None:
        fitting = frozenset(rights).intersection(RIGHTS_OF[kind])
        users = self.engine.users
        self.change(key, lambda: users.grant(key, kind, pattern, fitting, self.now_ms))
        if key in self.model:
            self.model[key][3].update((kind, pattern, right) for right in fitting)

    @rule(key=keys, kind=kinds, pattern=patterns, rights=some_rights)
    def revoke(self, key: str, kind: Kind, pattern: str, rights: Iterable[Right]) -> None:
        gone = {(kind, pattern, right) for right in rights}
        had = key in self.model and bool(self.model[key][3] & gone)
        try:
            self.engine.users.revoke(key, kind, pattern, frozenset(rights), self.now_ms)
        except NotFoundError:
            assert not had
        else:
            assert had
            self.model[key][3].difference_update(gone)

    def change(self, key: str, act: object) -> None:
        assert callable(act)
        try:
            act()
        except NotFoundError:
            assert key not in self.model
        else:
            assert key in self.model

    @rule(checkpoint=st.booleans(), clean=st.booleans())
    def restart(self, checkpoint: bool, clean: bool) -> None:
        self.engine.write()
        if checkpoint:
            self.engine.checkpoints.take(self.now_ms)
        if clean:
            self.engine.close(self.now_ms)
        else:
            self.engine.abandon()
        self.now_ms += 1_000
        self.engine = self.open()

    @invariant()
    def users_are_the_models(self) -> None:
        users = {user.access_key: user for user in self.engine.users.all()}
        assert users.keys() == self.model.keys()
        for key, (secret, admin, disabled, triples) in self.model.items():
            user = users[key]
            assert (user.secret, user.admin, user.disabled) == (secret, admin, disabled)
            for kind in Kind:
                for right in Right:
                    for name in NAMES:
                        granted = any(
                            (kind, right) == (one, of) and matches(pattern, name)
                            for one, pattern, of in triples
                        )
                        assert user.may(right, kind, name) is (admin or granted)


TestAccess = AccessMachine.TestCase

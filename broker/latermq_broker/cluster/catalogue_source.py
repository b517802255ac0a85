"""Shard 0's side of the catalogue: gives it to the others, by version, as soon as it changes.

change ──► version + 1 ──► the parked copies are answered ──► each shard asks again, with it
                                                              │ all that are there have it,
answered ◄────────────────────────────────────────────────────┘ or two seconds are over
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from latermq_broker.catalog.catalog import GROUPS, TOPICS, decode_group, decode_topic
from latermq_broker.cluster.catalogue_entries import (
    Key,
    Touched,
    add_rights,
    all_shared,
    encoded,
    identities,
    identity_of,
    times_of,
    version_of,
)
from latermq_broker.cluster.catalogue_file import read_memory, write_memory
from latermq_broker.engine.engine import Engine
from latermq_broker.errors import BadRequestError, RequestError
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.call.handler import Committer
from latermq_proto.latermq.v1 import cluster_pb2

log = logging.getLogger("latermq.cluster")

WAIT_MS_MAX: Final = 10_000
SPREAD_S_MAX: Final = 2.0  # until a shard that does not ask is taken for away
PRESENT_S: Final = 15.0  # a shard asked so lately, or is not there
STARTING_S: Final = 5.0  # all are there, of which a new life of this one has not heard yet
DELETED_MAX: Final = 1_000  # of a kind
DIGITS_MAX: Final = 20  # of a version's number
CHANGES_MAX: Final = 1_000  # versions back: a shard that has an older one is given everything


class Change(NamedTuple):
    """What made a version of the one before."""

    keys: frozenset[Key]
    deleted: tuple[tuple[Key, str], ...]  # with the identity that it had
    rights: bool  # limits or users, too


class CatalogueSource:
    """The catalogue of shard 0; call in a running loop.

    Args:
        shards: how many there are, with this one.
        has_users: calls are signed, so users are told, with their secrets, and to admins only.

    Raises:
        StoreUnusableError: what it remembers cannot be read.
    """

    def __init__(
        self,
        engine: Engine,
        committer: Committer,
        directory: Path,
        pins: Mapping[str, int],
        *,
        shards: int,
        has_users: bool,
    ) -> None:
        self._has_users = has_users
        self._engine = engine
        self._committer = committer
        self._directory = directory
        self._pins = pins
        self._loop = asyncio.get_running_loop()
        deleted = read_memory(directory).get("deleted", {})
        self._deleted: dict[str, list[tuple[str, str]]] = {
            kind: [(name, identity) for name, identity in deleted.get(kind, ())]
            for kind in (TOPICS, GROUPS)
        }
        self._is_forgetful = False  # of deletions: they are to be written
        self._writing = asyncio.Lock()  # them, one after the other
        self._touched = Touched(engine.catalog)
        self._known = identities(engine.catalog, all_shared(engine.catalog))
        self._changes: deque[Change] = deque(maxlen=CHANGES_MAX)  # the last makes `_number`
        self._seen_version = version_of(engine)
        self._life = secrets.token_hex(8)  # not of the log: a restored one repeats its epochs
        self._number = 1
        self._changed = asyncio.Event()  # replaced each time it is set
        self._asked = asyncio.Event()  # likewise
        self._drains = False
        asked_s = self._loop.time() - PRESENT_S + STARTING_S
        self._others: Final = range(1, shards)
        self._shards = dict.fromkeys(self._others, (0, asked_s))  # what each has, when it asked

    @property
    def version(self) -> str:
        """Name the catalogue as it is now."""
        return f"{self._life}.{self._number}"

    async def copy_catalogue(
        self, request: cluster_pb2.CopyCatalogueRequest, caller: Caller
    ) -> cluster_pb2.CopyCatalogueResponse:
        """Answer CopyCatalogue of cluster.proto. Raises BadRequestError: no other shard asks."""
        if request.shard not in self._others:
            raise BadRequestError(
                f"there is no shard {request.shard} that copies the catalogue: there are "
                f"{len(self._others)}, from 1"
            )
        await self._take(request)
        self._look()  # what is answered is what the version has, and no deletion is untold
        if request.version == self.version:
            self._has(request.shard, self._number)
            caller.call.on_cancel(lambda: self._leaves(request.shard))
            wait_s = min(max(request.wait_ms, 0), WAIT_MS_MAX) / 1_000
            caller.lasting.rest()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait_s)
            await caller.lasting.turn()
            self._look()
            if request.version == self.version:
                self._has(request.shard, self._number)
                return cluster_pb2.CopyCatalogueResponse(status=ok_status(), version=self.version)
        self._has(request.shard, 0)
        change = self._since(request.version) if request.changes else None
        return self._answer(change)

    def _since(self, version: str) -> Change | None:
        """Give all that changed since a version; None: that is not known any more."""
        life, _, number = version.rpartition(".")
        if life != self._life or not number.isdecimal() or len(number) > DIGITS_MAX:
            return None
        count = self._number - int(number)
        if not 0 < count <= len(self._changes):
            return None
        changes = [self._changes[-each] for each in range(1, count + 1)]
        keys = frozenset[Key]().union(*(change.keys for change in changes))
        deleted = tuple(entry for change in changes for entry in change.deleted)
        return Change(keys, deleted, any(change.rights for change in changes))

    def _answer(self, change: Change | None) -> cluster_pb2.CopyCatalogueResponse:
        """Give what changed; None: everything."""
        catalog = self._engine.catalog
        topics, groups = encoded(catalog, all_shared(catalog) if change is None else change.keys)
        response = cluster_pb2.CopyCatalogueResponse(
            status=ok_status(), version=self.version, log=self._engine.store.log.uuid.hex(),
            pins=self._pins, topics=topics, groups=groups, changes=change is not None,
            same_rights=change is not None and not change.rights,
        )  # fmt: skip
        if not response.same_rights:
            add_rights(response, self._engine, has_users=self._has_users)
        deletions = {TOPICS: response.deleted_topics, GROUPS: response.deleted_groups}
        for key, identity in self._remembered() if change is None else change.deleted:
            deletions[key.kind].add(name=key.name, identity=identity)
        return response

    def _remembered(self) -> Iterator[tuple[Key, str]]:
        """Yield the last deletions that are known, of this life or one before."""
        for kind, entries in self._deleted.items():
            for name, identity in entries:
                yield Key(kind, name), identity

    async def spread(self, sender: int = 0) -> None:
        """Remember what was changed, and wait until the shards that are there have it.

        Args:
            sender: the shard that sent the change on, which so is there; 0: this one was asked.
        """
        self._look()
        if sender in self._others:
            has, _ = self._shards.get(sender, (0, 0.0))
            self._shards[sender] = (has, self._loop.time())
        async with self._writing:
            if self._is_forgetful:
                self._is_forgetful = False
                memory = {"deleted": dict(self._deleted)}
                try:
                    await asyncio.to_thread(write_memory, self._directory, memory)
                except BaseException:
                    self._is_forgetful = True  # the next change has them written
                    raise
        number = self._number
        until_s = self._loop.time() + SPREAD_S_MAX
        while (left_s := until_s - self._loop.time()) > 0 and self._behind(number):
            try:
                await asyncio.wait_for(self._asked.wait(), left_s)
            except TimeoutError:
                log.warning("a shard has not copied a change yet", extra={"version": self.version})

    def on_second(self) -> None:
        """Look for what first use has made."""
        self._look()

    def drain(self) -> None:
        """Answer the copies that wait: this shard goes down."""
        self._drains = True
        self._changed.set()  # and stays so: who asks again does not wait

    def _look(self) -> None:
        """Count the version up if anything has changed, and see what was deleted."""
        seen = version_of(self._engine)
        if seen == self._seen_version:
            return
        before, self._seen_version = self._seen_version, seen
        keys, deleted = frozenset(self._touched), list[tuple[Key, str]]()
        self._touched.clear()
        for key in sorted(keys):
            former, now = self._known.pop(key, None), identity_of(self._engine.catalog, key)
            if now is not None:
                self._known[key] = now
            if former is not None and former != now:
                deleted.append((key, former))
                known = [*self._deleted[key.kind], (key.name, former)]
                self._deleted[key.kind] = known[-DELETED_MAX:]
                self._is_forgetful = True
        self._changes.append(Change(keys, tuple(deleted), rights=seen[1:] != before[1:]))
        self._number += 1
        self._changed.set()
        if not self._drains:
            self._changed = asyncio.Event()

    async def _take(self, request: cluster_pb2.CopyCatalogueRequest) -> None:
        """Make what first use made in another shard, unless it is here by now."""
        engine, now_ms = self._engine, self._committer.now_ms()
        before = version_of(engine)
        for topic in map(decode_topic, request.topics):
            if engine.catalog.topic(topic.name) is None:
                try:
                    engine.topics.create(
                        topic.name, topic.type, topic.queue_count, now_ms, times_of(topic),
                        topic.made_by,
                    )  # fmt: skip
                except RequestError as error:
                    self._cannot(request.shard, topic.name, error)
        for group in map(decode_group, request.groups):
            if engine.catalog.group(group.name) is None:
                try:
                    engine.groups.create(
                        group.name, fifo=group.fifo, max_attempts=group.max_attempts,
                        backoff=group.backoff, now_ms=now_ms, on_dead=group.on_dead,
                        lite_parent=group.lite_parent, lite_exclusive=group.lite_exclusive,
                        weight=group.weight, made_by=group.made_by,
                    )  # fmt: skip
                except RequestError as error:
                    self._cannot(request.shard, group.name, error)
        if version_of(engine) != before:
            await self._committer.written()

    def _cannot(self, shard: int, name: str, error: RequestError) -> None:
        log.error(
            "what another shard has cannot be made here",
            extra={"shard": shard, "name_there": name, "reason": str(error)},
        )

    def _has(self, shard: int, number: int) -> None:
        self._shards[shard] = (number, self._loop.time())
        self._asked.set()
        self._asked = asyncio.Event()

    def _leaves(self, shard: int) -> None:
        """Wait for a shard no more until it asks again: its connection ended."""
        self._shards.pop(shard, None)
        self._asked.set()
        self._asked = asyncio.Event()

    def _behind(self, number: int) -> bool:
        """Tell whether a shard that is there has an older version than this."""
        since_s = self._loop.time() - PRESENT_S
        return any(has < number for has, asked_s in self._shards.values() if asked_s >= since_s)

"""The other shards' side of the catalogue: copies it from shard 0 as soon as it changes.

A shard that cannot reach shard 0 goes on with what it has, and what first use makes meanwhile is
told when it is reached again. Only a new one waits for its first copy before it serves.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from latermq_broker.catalog.access import decode_user
from latermq_broker.catalog.catalog import (
    GROUPS,
    TOPICS,
    Group,
    Topic,
    decode_group,
    decode_topic,
)
from latermq_broker.catalog.limits import decode_limit
from latermq_broker.cluster.catalogue_entries import (
    Key,
    Touched,
    all_shared,
    encoded,
    group_identity,
    identities,
    identity_of,
    times_of,
)
from latermq_broker.cluster.catalogue_file import add_to_memory, read_memory, write_memory
from latermq_broker.cluster.catalogue_plan import Link, Plan, plan
from latermq_broker.engine.engine import Engine
from latermq_broker.errors import RequestError
from latermq_broker.services.call.answers import OK_CODE
from latermq_broker.services.call.handler import Committer
from latermq_proto.latermq.v1 import cluster_pb2

log = logging.getLogger("latermq.cluster")

WAIT_MS: Final = 10_000

Ask = Callable[[cluster_pb2.CopyCatalogueRequest], Any]


class CatalogueCopy:
    """The catalogue of a shard other than 0.

    Args:
        ask: has shard 0 answer; raises PeerError.
        on_pins: told the homes that are not by name, with each copy.
        on_group: told of a group that was changed here, None of one that was deleted.
        has_users: as of `CatalogueSource`.

    Raises:
        StoreUnusableError: what it remembers cannot be read.
    """

    def __init__(
        self,
        engine: Engine,
        committer: Committer,
        directory: Path,
        shard: int,
        on_pins: Callable[[Mapping[str, int]], None],
        on_group: Callable[[str, Group | None], None],
        *,
        has_users: bool,
    ) -> None:
        self._has_users = has_users
        self._engine = engine
        self._committer = committer
        self._directory = directory
        self._shard = shard
        self._on_pins = on_pins
        self._on_group = on_group
        memory = read_memory(directory)
        self._log = str(memory.get("log", ""))
        self._links: dict[str, dict[str, Link]] = {
            kind: {name: Link(*pair) for name, pair in memory.get(kind, {}).items()}
            for kind in (TOPICS, GROUPS)
        }
        self._version = ""
        self._added = 0  # links to the file, since it was written as a whole
        self._lacks = False  # something of shard 0 could not be made: all is asked for again
        self._touched = Touched(engine.catalog)  # among them is what shard 0 does not know
        self._touched |= all_shared(engine.catalog)
        self._reported: set[Key] = set()

    def request(self) -> cluster_pb2.CopyCatalogueRequest:
        """Ask for what shard 0 has and we have not, and tell what we have and it has not."""
        self._reported = self._news()
        topics, groups = encoded(self._engine.catalog, self._reported)
        return cluster_pb2.CopyCatalogueRequest(
            shard=self._shard, version=self._version, wait_ms=WAIT_MS, topics=topics, groups=groups,
            changes=not self._lacks,
        )  # fmt: skip

    def has_news(self) -> bool:
        """Tell whether first use has made something since the last request."""
        return not self._news() <= self._reported

    def _news(self) -> set[Key]:
        """Give what is no copy."""
        known = identities(self._engine.catalog, self._touched)
        self._touched.intersection_update(
            key for key in known if key.name not in self._links[key.kind]
        )
        return set(self._touched)

    async def take(self, answer: cluster_pb2.CopyCatalogueResponse) -> bool:
        """Make the catalogue here that of the answer; whether it was one.

        Raises:
            StoreError, OSError: it cannot be written.
        """
        if answer.status.code != OK_CODE:
            log.error("shard 0 gives no catalogue", extra={"reason": answer.status.message})
            return False
        if answer.version == self._version:
            return True
        self._lacks, self._version = False, ""  # if this fails, all is asked for again
        self._on_pins(answer.pins)
        change = {TOPICS: self._take_topics(answer), GROUPS: self._take_groups(answer)}
        if not answer.same_rights:
            self._take_limits_and_users(answer)
        await self._committer.written()
        self._log = self._log or answer.log
        added = sum(map(len, change.values()))
        self._added += added
        if answer.changes and self._added <= sum(map(len, self._links.values())):
            if added:
                await asyncio.to_thread(add_to_memory, self._directory, change)
        else:
            self._added = 0
            memory = {"log": self._log, **self._links}
            await asyncio.to_thread(write_memory, self._directory, memory)
        self._version = answer.version
        log.info("catalogue copied", extra={"version": answer.version})
        return True

    def _take_topics(self, answer: cluster_pb2.CopyCatalogueResponse) -> dict[str, Link | None]:
        engine, now_ms = self._engine, self._committer.now_ms()
        first = {topic.name: topic for topic in map(decode_topic, answer.topics)}
        known = {name: topic.epoch for name, topic in first.items()}
        steps = self._plan(TOPICS, known, answer)
        for name in steps.deleted:
            engine.topics.delete(name, now_ms)
        for name in steps.made:
            topic = first[name]
            create = partial(
                engine.topics.create, name, topic.type, topic.queue_count, now_ms, times_of(topic),
                topic.made_by,
            )  # fmt: skip
            self._try(name, create)
        for name in steps.compared:
            self._try(name, partial(self._alike, first[name], now_ms))
        return self._link(TOPICS, known, answer)

    def _alike(self, first: Topic, now_ms: int) -> None:
        """Give a topic the type, times and queues that it has at shard 0; they never get fewer."""
        own = self._engine.catalog.topic(first.name)
        assert own is not None
        more = first.queue_count if first.queue_count > own.queue_count else 0
        self._engine.topics.alter(first.name, first.type, more, now_ms, times_of(first))

    def _take_groups(self, answer: cluster_pb2.CopyCatalogueResponse) -> dict[str, Link | None]:
        engine, now_ms = self._engine, self._committer.now_ms()
        first = {group.name: group for group in map(decode_group, answer.groups)}
        known = {name: group_identity(group) for name, group in first.items()}
        steps = self._plan(GROUPS, known, answer)
        own = {name: engine.catalog.require_group(name) for name in steps.compared}
        unlike = [name for name in steps.compared if _kind(own[name]) != _kind(first[name])]
        for name in (*steps.deleted, *unlike):
            engine.groups.delete(name, now_ms)
            self._on_group(name, None)
        for name in (*steps.made, *unlike):
            self._try(name, partial(self._make_group, first[name], now_ms))
        for name in set(steps.compared) - set(unlike):
            group, before = first[name], own[name]
            if (group.max_attempts, group.backoff, group.on_dead, group.weight) != (
                before.max_attempts, before.backoff, before.on_dead, before.weight
            ):  # fmt: skip
                self._try(name, partial(self._alter_group, group, now_ms))
        return self._link(GROUPS, known, answer)

    def _alter_group(self, group: Group, now_ms: int) -> None:
        changed = self._engine.groups.alter(
            group.name, max_attempts=group.max_attempts, backoff=group.backoff,
            clear_backoff=group.backoff is None, now_ms=now_ms,
            on_dead=group.on_dead if group.fifo else None, weight=group.weight,
        )  # fmt: skip
        self._on_group(group.name, changed)

    def _make_group(self, group: Group, now_ms: int) -> None:
        made = self._engine.groups.create(
            group.name, fifo=group.fifo, max_attempts=group.max_attempts, backoff=group.backoff,
            now_ms=now_ms, on_dead=group.on_dead, lite_parent=group.lite_parent,
            lite_exclusive=group.lite_exclusive, weight=group.weight, made_by=group.made_by,
        )  # fmt: skip
        self._on_group(group.name, made)

    def _take_limits_and_users(self, answer: cluster_pb2.CopyCatalogueResponse) -> None:
        """Make limits and users those of shard 0, unless its log is another one than before."""
        engine, now_ms = self._engine, self._committer.now_ms()
        limits = {limit.key: limit for limit in map(decode_limit, answer.limits)}
        users = {user.access_key: user for user in map(decode_user, answer.users)}
        for limit in limits.values():
            engine.limits.copy(limit, now_ms)
        for user in users.values():
            engine.users.copy(user, now_ms)
        if self._log not in ("", answer.log):
            log.error(
                "shard 0 has another log than before: limits and users that it does not have are "
                "kept. Remove the file CATALOGUE of this shard to take what it has",
                extra={"before": self._log, "now": answer.log},
            )
            return
        for known in engine.limits.table.all():
            if known.key not in limits:
                engine.limits.unset(known.scope, known.name, now_ms)
        for former in engine.users.all() if self._has_users else ():
            if former.access_key not in users:
                engine.users.delete(former.access_key, now_ms)

    def _plan(
        self, kind: str, first: Mapping[str, str], answer: cluster_pb2.CopyCatalogueResponse
    ) -> Plan:
        """Plan for all entries of a kind; of changes, for those that changed."""
        catalog = self._engine.catalog
        keys = _changed(kind, first, answer) if answer.changes else all_shared(catalog)
        own = {
            key.name: identity
            for key, identity in identities(catalog, keys).items()
            if key.kind == kind
        }
        deleted = {(entry.name, entry.identity) for entry in _deletions(kind, answer)}
        steps = plan(own, first, self._links[kind], deleted)
        self._touched |= {Key(kind, name) for name in steps.news}
        return steps

    def _link(
        self, kind: str, first: Mapping[str, str], answer: cluster_pb2.CopyCatalogueResponse
    ) -> dict[str, Link | None]:
        """Note which entries are copies by now; of changes, those that changed."""
        change: dict[str, Link | None] = {}
        for key in _changed(kind, first, answer):
            own = identity_of(self._engine.catalog, key)
            there = first.get(key.name)
            change[key.name] = None if own is None or there is None else Link(there, own)
        links = self._links[kind] if answer.changes else {}
        for name, link in change.items():
            if link is None:
                links.pop(name, None)
            else:
                links[name] = link
        self._links[kind] = links
        return change

    def _try(self, name: str, do: Callable[[], Any]) -> None:
        """Do what another type or a bound may forbid here; then it stays as it is, and is told."""
        try:
            do()
        except RequestError as error:
            self._lacks = True
            log.error(
                "what shard 0 has cannot be made here",
                extra={"name_there": name, "reason": str(error)},
            )


def _deletions(
    kind: str, answer: cluster_pb2.CopyCatalogueResponse
) -> Iterable[cluster_pb2.DeletedEntry]:
    return answer.deleted_topics if kind == TOPICS else answer.deleted_groups


def _changed(
    kind: str, first: Mapping[str, str], answer: cluster_pb2.CopyCatalogueResponse
) -> set[Key]:
    """List the entries that an answer tells of."""
    names = first.keys() | {entry.name for entry in _deletions(kind, answer)}
    return {Key(kind, name) for name in names}


def _kind(group: Group) -> Group:
    """Give a group without what can be altered or is its own."""
    return replace(
        group, id=0, max_attempts=1, backoff=None, created_ms=0, on_dead=group.on_dead.SKIP,
        forgotten=(), made_by="", weight=1,
    )  # fmt: skip

"""What a change of the catalogue costs, and that copying changes alone leaves nothing out."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest

from latermq_broker.catalog.access import User
from latermq_broker.catalog.catalog import GROUPS, TOPICS, TopicType
from latermq_broker.catalog.limits import Limit, Scope
from latermq_broker.cluster import catalogue_copy, catalogue_source
from latermq_broker.cluster.catalogue_copy import CatalogueCopy
from latermq_broker.cluster.catalogue_file import add_to_memory, read_memory, write_memory
from latermq_broker.cluster.catalogue_source import CatalogueSource
from latermq_broker.engine.catalog.fresh_shares import FRESH_MS
from latermq_broker.errors import (
    BadRequestError,
    StoreUnusableError,
    TooManyRequestsError,
)
from latermq_broker.store.directory import CATALOGUE_NAME
from latermq_proto.latermq.v1 import cluster_pb2
from support.engine_rig import START_MS, EngineRig
from support.fake_committer import FakeCommitter
from support.lasting_call import answered


class Pair:
    """Shard 0 and another one, each with a directory for what it remembers."""

    def __init__(self, directory: Path) -> None:
        self.first, self.other = EngineRig(), EngineRig()
        self.directory = directory
        self.committer = FakeCommitter(START_MS)
        for name in ("0", "1"):
            (directory / name).mkdir()
        self.start_first()
        self.start_other()

    def start_first(self) -> None:
        self.source = CatalogueSource(
            self.first.engine, self.committer, self.directory / "0", {}, shards=2, has_users=True
        )

    def start_other(self) -> None:
        self.copy = CatalogueCopy(
            self.other.engine, self.committer, self.directory / "1", 1,
            lambda pins: None, lambda name, group: None, has_users=True,
        )  # fmt: skip

    async def copied(self) -> cluster_pb2.CopyCatalogueResponse:
        request = self.copy.request()
        request.wait_ms = 0
        answer = await answered(self.source.copy_catalogue, request)
        assert await self.copy.take(answer)
        return answer

    def make(self, rig: EngineRig, name: str, *, attempts: int = 3) -> None:
        self.committer.time_ms += 1  # tells a group from the one before
        rig.engine.groups.create(
            name, fifo=False, max_attempts=attempts, backoff=None, now_ms=self.committer.time_ms
        )

    def close(self) -> None:
        for rig in (self.first, self.other):
            rig.engine.abandon()


async def test_a_change_costs_the_same_however_much_there_is(tmp_path: Path) -> None:
    """It is the change that is told, taken and remembered."""
    pair = Pair(tmp_path)
    for number in range(300):
        pair.make(pair.first, f"group-{number}")
    pair.first.engine.users.copy(User(access_key="shop", secret="x" * 16), START_MS)
    answer = await pair.copied()
    assert (len(answer.groups), len(answer.users), answer.changes) == (300, 1, False)
    remembered = (tmp_path / "1" / CATALOGUE_NAME).stat().st_size
    pair.make(pair.first, "new")
    answer = await pair.copied()
    assert answer.changes
    assert answer.ByteSize() < 600
    assert (len(answer.groups), len(answer.topics), len(answer.users)) == (1, 0, 0)
    assert (tmp_path / "1" / CATALOGUE_NAME).stat().st_size - remembered < 100
    assert not pair.copy.request().groups, "what was copied is told as news"
    pair.first.engine.limits.copy(Limit(scope=Scope.CLIENT, name="shop", sends_per_s=4), START_MS)
    answer = await pair.copied()
    assert (len(answer.groups), len(answer.limits), len(answer.users)) == (0, 1, 1)
    assert pair.other.engine.catalog.group_count() == 301
    pair.close()


async def test_a_users_share_counts_what_it_made_at_any_shard(tmp_path: Path) -> None:
    pair, shop = Pair(tmp_path), User(access_key="shop", secret="x" * 16)
    for rig, number in ((pair.first, 0), (pair.other, 1)):
        rig.engine.ensure_topic(f"topic-{number}", START_MS, shop)
        rig.engine.ensure_group(f"group-{number}", START_MS, shop)
    for _ in range(3):
        await pair.copied()
    for rig in (pair.first, pair.other):
        assert rig.engine.catalog.topics_made == {"shop": 2}
        assert rig.engine.catalog.groups_made == {"shop": 2}
    pair.close()


async def test_a_user_at_all_shards_at_once_has_no_more_than_its_part(tmp_path: Path) -> None:
    """It makes what it may at both between two copies, again and again."""
    pair, shop = Pair(tmp_path), User(access_key="shop", secret="x" * 16)
    part = 20
    for rig in (pair.first, pair.other):
        rig.engine.limits.table.parts = 2
        catalog = replace(rig.config.catalog, topic_count_max=2 * part, group_count_max=2 * part)
        rig.engine.reconfigure(replace(rig.config, catalog=catalog))
    made = 0
    for _ in range(8):
        for rig, where in ((pair.first, "first"), (pair.other, "other")):
            with suppress(TooManyRequestsError):
                while True:
                    made += 1
                    rig.engine.ensure_topic(f"{where}-{made}", pair.committer.time_ms, shop)
                    rig.engine.ensure_group(f"{where}-{made}", pair.committer.time_ms, shop)
        for _ in range(2):
            await pair.copied()
        for rig in (pair.first, pair.other):
            assert rig.engine.catalog.topics_made["shop"] <= part
            assert rig.engine.catalog.groups_made["shop"] <= part
        pair.committer.time_ms += FRESH_MS
    assert pair.first.engine.catalog.topics_made == pair.other.engine.catalog.topics_made
    assert pair.first.engine.catalog.topics_made["shop"] >= part - 1
    pair.close()


async def test_what_is_too_long_ago_is_copied_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue_source, "CHANGES_MAX", 2)
    pair = Pair(tmp_path)
    assert not (await pair.copied()).changes
    for late in (2, 3):
        for number in range(late):
            pair.make(pair.first, f"group-{late}-{number}")
            pair.source.on_second()
        assert (await pair.copied()).changes == (late == 2)
    assert pair.other.engine.catalog.group_count() == 5
    assert (await pair.copied()).version == pair.source.version
    pair.start_first()
    pair.make(pair.first, "in another life")
    assert not (await pair.copied()).changes
    pair.close()


async def test_a_change_tells_all_that_it_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little is remembered for those that were away."""
    monkeypatch.setattr(catalogue_source, "DELETED_MAX", 1)
    pair = Pair(tmp_path)
    for name in ("one", "two", "three"):
        pair.make(pair.first, name)
    await pair.copied()
    for name in ("one", "two", "three"):
        pair.first.engine.groups.delete(name, START_MS)
    assert (await pair.copied()).changes
    assert not pair.other.engine.catalog.group_count()
    pair.close()


async def test_what_cannot_be_made_is_asked_for_again(tmp_path: Path) -> None:
    """A topic of another type is in the way; when it is gone, the next change brings both."""
    pair = Pair(tmp_path)
    await pair.copied()
    pair.first.engine.topics.create("orders", TopicType.NORMAL, 2, START_MS)
    pair.other.engine.topics.create("orders", TopicType.LITE, 0, START_MS)
    await pair.copied()
    assert pair.other.engine.catalog.require_topic("orders").type is TopicType.LITE
    pair.other.engine.topics.delete("orders", START_MS)
    pair.make(pair.first, "next")
    assert not (await pair.copied()).changes
    assert pair.other.engine.catalog.require_topic("orders").type is TopicType.NORMAL
    pair.make(pair.first, "and next")
    assert (await pair.copied()).changes
    pair.close()


async def test_a_shard_0_from_a_backup_is_told_what_it_lacks(tmp_path: Path) -> None:
    """Its log has the id, and its start the epoch, of the one that others copied from."""
    pair = Pair(tmp_path)
    pair.make(pair.first, "since")
    pair.start_first()
    await pair.copied()
    catalog = pair.first.engine.catalog
    catalog.remove_group(catalog.require_group("since").id)
    pair.start_first()
    for _ in range(2):
        await pair.copied()
    assert catalog.group("since") is not None
    pair.close()


async def test_what_was_made_anew_is_no_copy_before_the_deletion_is_told(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.first.engine.topics.create("orders", TopicType.NORMAL, 2, START_MS)
    await pair.copied()
    before = pair.other.engine.catalog.require_topic("orders").epoch
    pair.start_other()
    pair.first.engine.topics.delete("orders", START_MS)
    pair.first.engine.topics.create("orders", TopicType.NORMAL, 2, START_MS)
    await pair.copied()
    pair.source.on_second()
    await pair.copied()
    assert pair.other.engine.catalog.require_topic("orders").epoch != before
    pair.close()


async def test_after_a_disk_that_was_full_everything_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path)
    for name in ("one", "two"):
        pair.make(pair.first, name)
        await pair.copied()

    def add_half(directory: Path, _: object) -> None:
        with (directory / CATALOGUE_NAME).open("ab") as file:
            file.write(b'\n{"groups": {"thr')
        raise OSError("no space left on device")

    pair.make(pair.first, "three")
    with monkeypatch.context() as patched:
        patched.setattr(catalogue_copy, "add_to_memory", add_half)
        with pytest.raises(OSError, match="no space"):
            await pair.copied()
    assert not (await pair.copied()).changes
    pair.make(pair.first, "four")
    assert (await pair.copied()).changes
    assert len(read_memory(tmp_path / "1")[GROUPS]) == 4
    pair.close()


async def test_what_was_deleted_is_written_by_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, goes_on, now, most = Pair(tmp_path), Event(), list[int](), list[int]()

    def write(directory: Path, memory: Mapping[str, Any]) -> None:
        now.append(1)
        most.append(len(now))
        goes_on.wait()
        write_memory(directory, memory)
        now.pop()

    monkeypatch.setattr(catalogue_source, "write_memory", write)
    spreads = []
    for name in ("one", "two"):
        pair.make(pair.first, name)
        pair.source.on_second()
        pair.first.engine.groups.delete(name, START_MS)
        spreads.append(asyncio.create_task(pair.source.spread()))
        await asyncio.sleep(0)
    goes_on.set()
    await asyncio.gather(*spreads)
    assert most == [1, 1]
    assert [name for name, _ in read_memory(tmp_path / "0")["deleted"][GROUPS]] == ["one", "two"]
    pair.close()


async def test_what_was_deleted_while_the_disk_was_full_is_written_with_the_next_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path)
    for name in ("one", "two"):
        pair.make(pair.first, name)
    pair.source.on_second()
    pair.first.engine.groups.delete("one", START_MS)

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    pair.source._shards.clear()  # nobody is waited for
    with monkeypatch.context() as patched:
        patched.setattr(catalogue_source, "write_memory", full)
        with pytest.raises(OSError, match="no space"):
            await pair.source.spread()
    pair.make(pair.first, "three")  # deletes nothing
    await pair.source.spread()
    assert [name for name, _ in read_memory(tmp_path / "0")["deleted"][GROUPS]] == ["one"]
    pair.close()


@pytest.mark.parametrize("heard_of", ["by the start", "by what it sends on"])
async def test_a_shard_that_has_not_asked_yet_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard_of: str
) -> None:
    """A new life of shard 0 has heard of none; what one made by it, that one has at once."""
    monkeypatch.setattr(catalogue_source, "SPREAD_S_MAX", 60.0)
    if heard_of == "by what it sends on":
        monkeypatch.setattr(catalogue_source, "STARTING_S", 0.0)
    pair = Pair(tmp_path)
    pair.make(pair.first, "one")
    sender = 0
    if heard_of == "by what it sends on":
        await pair.source.spread()  # who was not heard of is not waited for
        sender = 1
    spread = asyncio.create_task(pair.source.spread(sender))
    for _ in range(2):
        await asyncio.sleep(0)
        assert not spread.done()
        await pair.copied()
    await spread
    assert pair.other.engine.catalog.group("one") is not None
    pair.close()


@pytest.mark.parametrize("shard", [-1, 0, 2, 1 << 30])
async def test_no_shard_that_there_is_not_copies(tmp_path: Path, shard: int) -> None:
    """It was waited for with each change, for 15 s."""
    pair = Pair(tmp_path)
    request = cluster_pb2.CopyCatalogueRequest(shard=shard, version=pair.source.version)
    with pytest.raises(BadRequestError, match="there is no shard"):
        await answered(pair.source.copy_catalogue, request)
    assert set(pair.source._shards) == {1}
    pair.close()


@pytest.mark.parametrize("number", ["x", "", "-1", "²", "1" * 5_000, "99"])
async def test_a_version_that_never_was_is_answered_with_everything(
    tmp_path: Path, number: str
) -> None:
    pair = Pair(tmp_path)
    pair.make(pair.first, "one")
    life, _, _ = pair.source.version.rpartition(".")
    request = cluster_pb2.CopyCatalogueRequest(shard=1, version=f"{life}.{number}", changes=True)
    answer = await answered(pair.source.copy_catalogue, request)
    assert (answer.changes, len(answer.groups)) == (False, 1)
    pair.close()


async def test_who_drains_has_nobody_wait_though_something_changes(tmp_path: Path) -> None:
    """What a last send makes would have the others park until they are cut off."""
    pair = Pair(tmp_path)
    pair.source.drain()
    pair.make(pair.first, "one")
    await pair.copied()
    request = pair.copy.request()
    assert request.wait_ms >= 10_000
    call = answered(pair.source.copy_catalogue, request)
    answer = await asyncio.wait_for(call, 5.0)
    assert answer.version == request.version
    pair.close()


async def test_a_file_that_was_taken_away_is_not_begun_with_a_change(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    for name in ("one", "two"):
        pair.make(pair.first, name)
        await pair.copied()
    (tmp_path / "1" / CATALOGUE_NAME).unlink()
    pair.make(pair.first, "three")
    await pair.copied()
    pair.start_other()
    await pair.copied()
    assert len(read_memory(tmp_path / "1")[GROUPS]) == 3
    pair.close()


@pytest.mark.parametrize("seed", range(12))
async def test_both_have_the_same_after_anything(tmp_path: Path, seed: int) -> None:
    """Made, altered, deleted and made anew at both, with starts of each in between."""
    random, pair = Random(seed), Pair(tmp_path)
    names = [f"name-{number}" for number in range(6)]
    for _ in range(60):
        rig = random.choice((pair.first, pair.first, pair.other))
        engine, name = rig.engine, random.choice(names)
        pair.committer.time_ms += 1
        step = random.randrange(7)
        if step < 2 and engine.catalog.group(name) is None:
            pair.make(rig, name, attempts=random.randint(1, 5))
        elif step == 2 and engine.catalog.topic(name) is None:
            engine.topics.create(
                name, TopicType.NORMAL, random.randint(1, 3), pair.committer.time_ms
            )
        elif rig is pair.first and step == 3 and engine.catalog.group(name) is not None:
            engine.groups.delete(name, pair.committer.time_ms)
        elif rig is pair.first and step == 4 and engine.catalog.topic(name) is not None:
            engine.topics.delete(name, pair.committer.time_ms)
        elif rig is pair.first and step == 5 and engine.catalog.group(name) is not None:
            engine.groups.alter(
                name, max_attempts=random.randint(1, 5), backoff=None, clear_backoff=False,
                now_ms=pair.committer.time_ms, on_dead=None, weight=random.randint(1, 3),
            )  # fmt: skip
        elif step == 6:
            if rig is pair.first:  # what it deleted since it wrote that down may come back
                pair.start_first()
            else:
                pair.start_other()
        if random.random() < 0.4:
            await pair.copied()
    for _ in range(3):  # what is news is told, made there and linked here
        await pair.copied()
    first, other = pair.first.engine.catalog, pair.other.engine.catalog
    assert {(topic.name, topic.type) for topic in first.topics()} == {
        (topic.name, topic.type) for topic in other.topics()
    }
    assert {(group.name, group.max_attempts, group.weight) for group in first.groups()} == {
        (group.name, group.max_attempts, group.weight) for group in other.groups()
    }
    request, memory = pair.copy.request(), read_memory(tmp_path / "1")
    assert (len(request.topics), len(request.groups)) == (0, 0), "something is news yet"
    assert memory[TOPICS] == {
        topic.name: [topic.epoch, other.require_topic(topic.name).epoch] for topic in first.topics()
    }
    assert memory[GROUPS] == {
        group.name: [str(group.created_ms), str(other.require_group(group.name).created_ms)]
        for group in first.groups()
    }
    pair.close()


def test_a_change_that_a_crash_cut_off_is_none(tmp_path: Path) -> None:
    path = tmp_path / CATALOGUE_NAME
    write_memory(tmp_path, {"log": "a", TOPICS: {"one": ["1", "2"]}, GROUPS: {}})
    add_to_memory(tmp_path, {TOPICS: {"two": ["3", "4"], "one": None}})
    whole = {"log": "a", TOPICS: {"two": ["3", "4"]}, GROUPS: {}}
    assert read_memory(tmp_path) == whole
    before = path.stat().st_size
    add_to_memory(tmp_path, {GROUPS: {"three": ["5", "6"]}})
    for size in range(before, path.stat().st_size):
        cut = tmp_path / str(size)
        cut.mkdir()
        (cut / CATALOGUE_NAME).write_bytes(path.read_bytes()[:size])
        assert read_memory(cut) == whole
    add_to_memory(tmp_path, {})
    path.write_bytes(path.read_bytes().replace(b'"three"', b'"three'))
    with pytest.raises(StoreUnusableError, match="cannot read"):
        read_memory(tmp_path)

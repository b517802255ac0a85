"""A shard 0 whose directory is lost has its catalogue from the other shards, as they have it."""

from pathlib import Path

from latermq_broker.catalog.catalog import TopicTimes, TopicType
from latermq_broker.cluster.catalogue_copy import CatalogueCopy
from latermq_broker.cluster.catalogue_source import CatalogueSource
from support.engine_rig import START_MS, EngineRig
from support.fake_committer import FakeCommitter
from support.lasting_call import answered


def source_of(rig: EngineRig, directory: Path) -> CatalogueSource:
    directory.mkdir()
    return CatalogueSource(
        rig.engine, FakeCommitter(START_MS), directory, {}, shards=2, has_users=False
    )


async def copied(copy: CatalogueCopy, source: CatalogueSource) -> None:
    assert await copy.take(await answered(source.copy_catalogue, copy.request()))


def times(rig: EngineRig) -> TopicTimes:
    topic = rig.engine.catalog.topic("orders")
    assert topic is not None
    return TopicTimes(topic.retention_ms, topic.unread_retention_ms, topic.dedup_window_ms)


async def test_a_topics_own_times_are_not_lost_with_it(tmp_path: Path) -> None:
    first, other, anew = EngineRig(), EngineRig(), EngineRig()
    ours = TopicTimes(3_600_000, 7_200_000, 1_000)
    first.engine.topics.create("orders", TopicType.NORMAL, 2, START_MS)
    first.engine.topics.alter("orders", TopicType.NORMAL, 0, START_MS, ours)
    copy = CatalogueCopy(
        other.engine, FakeCommitter(START_MS), tmp_path, 1, lambda pins: None,
        lambda name, group: None, has_users=False,
    )  # fmt: skip
    await copied(copy, source_of(first, tmp_path / "0"))
    assert times(other) == ours
    source = source_of(anew, tmp_path / "anew")
    for _ in range(2):  # the second request tells what the first answer lacked
        await copied(copy, source)
    assert (times(anew), times(other)) == (ours, ours)
    for rig in (first, other, anew):
        rig.engine.abandon()

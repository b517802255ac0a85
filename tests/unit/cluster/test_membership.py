"""What a shard writes into its directory when it first joins: which it is, and what is pinned."""

import asyncio
from pathlib import Path

import pytest

from latermq_broker.cluster import shard as shard_module
from latermq_broker.cluster.mark import Mark, read_mark
from latermq_broker.cluster.membership import Membership
from latermq_broker.cluster.placement import home_by_name
from latermq_broker.config.cluster import ClusterConfig
from latermq_broker.config.config import Config
from latermq_broker.config.replication import ReplicationConfig
from latermq_broker.engine.state.model import TopicType
from latermq_broker.errors import StoreFullError
from latermq_proto.latermq.v1 import cluster_pb2
from support.engine_rig import EngineRig
from support.fake_committer import FakeCommitter

ALONE = ("127.0.0.1:81", "127.0.0.1:82")
STOOD_BY_FOR = ("127.0.0.1:81;127.0.0.1:83", "127.0.0.1:82;127.0.0.1:84")


@pytest.mark.parametrize(
    ("shards", "kafka", "pins"), [(ALONE, "", {"ordered": 0}), (STOOD_BY_FOR, "k:1", {})]
)
async def test_only_what_was_there_before_the_cluster_is_pinned(
    tmp_path: Path, shards: tuple[str, ...], kafka: str, pins: dict[str, int]
) -> None:
    """A broker that takes a log over finds topics, too; they are where their names say."""
    rig = EngineRig()
    rig.engine.topics.create("ordered", TopicType.FIFO, 4, rig.now_ms)
    config = Config(
        cluster=ClusterConfig(shards=shards), replication=ReplicationConfig(kafka=kafka)
    )
    shard = Membership(config, tmp_path).join(rig.engine, FakeCommitter())
    await shard.close()
    assert read_mark(tmp_path) == Mark(0, 2, pins)


async def test_a_copy_that_failed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a disk that was full for a while."""
    monkeypatch.setattr(shard_module, "ASK_AGAIN_S", 0)
    rig, copied = EngineRig(), asyncio.Event()
    config = Config(cluster=ClusterConfig(shards=ALONE, shard=1))
    shard = Membership(config, tmp_path).join(rig.engine, FakeCommitter())

    async def answer(request: object) -> cluster_pb2.CopyCatalogueResponse:
        return cluster_pb2.CopyCatalogueResponse()

    takes = iter((OSError("no space left"), StoreFullError("no room")))

    async def take(_: object) -> bool:
        for error in takes:
            raise error
        copied.set()
        await asyncio.Event().wait()
        return True

    assert shard._copy is not None
    monkeypatch.setattr(shard, "_answer", answer)
    monkeypatch.setattr(shard._copy, "take", take)
    await shard.begin(copied)
    assert copied.is_set()
    await shard.close()
    rig.engine.abandon()


async def test_pins_that_could_not_be_written_are_taken_over_with_the_next_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else this shard alone would look for the topic where its name says."""
    name = next(each for each in "abcdefgh" if home_by_name(each, len(ALONE)) == 1)
    rig = EngineRig()
    config = Config(cluster=ClusterConfig(shards=ALONE, shard=1))
    shard = Membership(config, tmp_path).join(rig.engine, FakeCommitter())
    fifo = rig.engine.topics.create(name, TopicType.FIFO, 4, rig.now_ms)

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shard_module, "write_mark", full)
        with pytest.raises(OSError, match="no space"):
            shard._pin({name: 0})
    assert shard.elsewhere(name, fifo, ordered=True) is None
    shard._pin({name: 0})
    assert shard.elsewhere(name, fifo, ordered=True) == 0
    assert read_mark(tmp_path) == Mark(1, 2, {name: 0})
    await shard.close()
    rig.engine.abandon()


def test_a_page_of_who_stands_by_says_for_which_shard(tmp_path: Path) -> None:
    config = Config(
        cluster=ClusterConfig(shards=STOOD_BY_FOR, shard=1),
        replication=ReplicationConfig(kafka="k:1"),
    )
    page = Membership(config, tmp_path).page(["latermq_replication_owner 0\n"])
    assert "".join(page) == 'latermq_replication_owner{shard="1"} 0\n'

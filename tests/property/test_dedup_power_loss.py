"""Power fails after any call of the disk: an id is there with its message, or neither is."""

from random import Random
from typing import Final

import pytest

from latermq_broker.config.config import DedupConfig
from latermq_broker.engine.state.model import Outgoing
from latermq_broker.store.offline.inspect import verify_directory
from latermq_broker.store.records.dedup_records import dedup_key
from support.engine_rig import EngineRig, short_store
from support.small_bounds import SMALL_BLOCKS, bounded
from support.torn_files import TornFiles

SEEDS: Final = 3
SENDS: Final = 25
DEDUP: Final = DedupConfig(window_ms=3_600_000)


def rig_of(files: TornFiles) -> EngineRig:
    store = bounded(short_store(retention_ms=0), SMALL_BLOCKS)
    return EngineRig(files=files, dedup=DEDUP, store=store)


def stored(rig: EngineRig) -> list[tuple[str, str]]:
    """Dedup ids (which are the bodies) and message ids, of what is in the queue."""
    topic = rig.engine.catalog.topic("orders")
    if topic is None:
        return []
    (ends,) = rig.engine.topics.ends(topic)
    rows = rig.engine.queues.read(
        "orders", "", 0, ends.earliest_offset, ends.next_offset, rows_max=1 << 20, bytes_max=1 << 30
    )
    return sorted((row.rest.rstrip(b".").decode(), row.sys.decode()) for row in rows)


def remembered(rig: EngineRig, ids: list[str]) -> list[tuple[str, str]]:
    topic = rig.engine.catalog.topic("orders")
    if topic is None:
        return []
    known = rig.engine._state.dedup
    found = ((name, known.get(dedup_key(topic.id, name), rig.now_ms)) for name in ids)
    return sorted((name, value.message_id.decode()) for name, value in found if value is not None)


def outgoing(random: Random, names: list[str], prefix: str) -> list[Outgoing]:
    return [
        Outgoing(
            "orders",
            name.encode() + b"." * random.choice((10, 900)),
            f"{prefix}{index}".encode(),
            f"{prefix}{index}",
            dedup_id=name,
        )
        for index, name in enumerate(names)
    ]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_power_lost_after_any_call(seed: int) -> None:
    random = Random(seed)
    files = TornFiles()
    rig = rig_of(files)
    ids: list[str] = []
    promised: list[tuple[str, str]] = []  # of the last sync
    images = 0

    def lose_power() -> None:
        nonlocal images
        images += 1
        image = files.power_loss(seed * 1_000_000 + images)
        assert verify_directory(rig.DIRECTORY, image).ok
        again = rig_of(image)
        found = remembered(again, ids)
        assert found == stored(again), f"image {images}"
        assert set(promised) <= set(found), f"image {images}"
        if ids:  # what is in doubt is sent again
            again.engine.send(outgoing(random, ids, "again"), again.now_ms)
            again.crash()
            assert [name for name, _ in stored(again)] == sorted(ids)
            assert remembered(again, ids) == stored(again)
        again.engine.abandon()

    files.after_call = lose_power
    for number in range(SENDS):
        new = [f"{number}-{each}" for each in range(random.choice((1, 1, 3)))]
        again = random.sample(ids, min(len(ids), random.choice((0, 1, 2))))
        ids += new
        rig.engine.send(outgoing(random, [*new, *again], f"m{number}-"), rig.now_ms)
        rig.engine.write()
        if random.random() < 0.3:
            before = stored(rig)
            log = rig.engine.store.log
            log.synced(log.sync())
            promised = before
        if random.random() < 0.1:
            rig.engine.checkpoints.take(rig.now_ms)
    assert images > SENDS

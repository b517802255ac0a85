"""Power fails after every single call of a busy store's life; each image must come back sound."""

from random import Random
from typing import Final

import pytest

from latermq_broker.config.config import Flush
from latermq_broker.store import checkpoint_job
from latermq_broker.store.offline.inspect import scan_directory, verify_directory
from latermq_broker.store.records.record import RecordType
from support.store_rig import ROOT, StoreRig, small_config
from support.torn_files import TornFiles

SEEDS: Final = 5  # each about 90 images, per flush policy


def live(rig: StoreRig, random: Random) -> None:
    """Everything a store does, with enough bytes to fill several segments."""
    for _ in range(10):
        for _ in range(random.randrange(6)):
            if random.random() < 0.3:
                rig.append(*(random.randrange(500) for _ in range(random.randrange(2, 5))))
            else:
                rig.append(random.randrange(1500), topic_id=random.randrange(1, 3))
        rig.write()
        match random.randrange(6):
            case 0 | 1:
                rig.sync()
            case 2:
                rig.checkpoint()
            case 3:
                rig.store.log.prepare_next()
            case 4:
                rig.sync()
                rig.store.log.mark(rig.now_ms)


@pytest.mark.parametrize("flush", [Flush.ASYNC, Flush.SYNC])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_power_lost_after_any_call(seed: int, flush: Flush) -> None:
    files = TornFiles()
    rig = StoreRig(files, small_config(flush=flush))
    images = 0

    def lose_power() -> None:
        nonlocal images
        images += 1
        check_image(files, rig, seed=seed * 1_000_000 + images)

    files.after_call = lose_power
    rig.start()
    live(rig, Random(seed))
    rig.close()
    assert images > 30


@pytest.mark.parametrize("seed", range(SEEDS))
def test_power_lost_where_queue_files_are_synced_with_their_file_system(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_job, "SYNC_EACH_MAX", 0)
    test_power_lost_after_any_call(seed, Flush.ASYNC)


def check_image(files: TornFiles, rig: StoreRig, seed: int) -> None:
    """Recover from what the disk may hold now, write on, lose power again, recover again."""
    image = files.power_loss(seed)
    again = StoreRig(image, rig.config)
    again.model.groups = list(rig.model.groups)
    again.model.durable = rig.model.durable
    try:
        offline = whole_records(image)
        report = again.restart(power_lost=True)
        assert offline is None or offline == (report.torn_bytes, len(again.facts))
        again.append(100)
        again.append(20, 30)
        again.write()
        again.sync()
        again.append(400)
        again.write()
        again.files = image.power_loss(seed)
        again.restart(power_lost=True)
        assert len(again.facts) >= 3
        again.store.abandon()
    except BaseException as error:
        error.add_note(f"seed {seed}, {len(rig.facts)} facts, {rig.model.durable} durable groups")
        raise


def whole_records(image: TornFiles) -> tuple[int, int] | None:
    """Torn bytes and facts that the offline reader sees; None without a log. It changes nothing."""
    if not any(path.suffix == ".seg" for path in image.inodes):
        return None
    before = image.disk.snapshot()
    report = verify_directory(ROOT, image)
    assert report.ok, report
    facts = sum(
        record.type is RecordType.MESSAGE and record.position < report.end
        for record in scan_directory(ROOT, image)
    )
    assert image.disk.snapshot() == before
    assert image.open_count == 0
    return report.torn_bytes, facts

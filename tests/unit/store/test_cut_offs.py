"""Which lives were cut off: from the log, from checkpoints, bounded."""

from latermq_broker.store.cut_offs import CUT_OFFS_MAX, CUT_OFFS_SECTION, CutOffs
from latermq_broker.store.records.record import FLAG_CLEAN, Record, RecordType


def record(epoch: int, store_ms: int, *, clean: bool = False) -> Record:
    type_ = RecordType.MARK if clean else RecordType.ACK
    return Record(64, type_, FLAG_CLEAN if clean else 0, store_ms, epoch, b"", 40)


def told_by(*records: Record) -> CutOffs:
    """Of a log that has these, and of the life that then began."""
    found = CutOffs()
    found.begin(whole=True)
    for one in records:
        found.see(one, one)
    found.begin_life(records[-1].epoch + 1, records[-1].store_ms)
    return found


def test_a_life_is_concerned_from_its_begin_to_its_last_record() -> None:
    found = told_by(record(1, 10), record(1, 20, clean=True), record(2, 20), record(2, 30))
    assert [at_ms for at_ms in range(50) if found.concern(at_ms)] == list(range(20, 31))


def test_a_checkpoint_and_the_log_behind_it_say_what_the_log_says() -> None:
    log = [
        record(1, 10), record(1, 20), record(2, 20), record(2, 30, clean=True), record(3, 30),
        record(3, 40), record(4, 40), record(4, 50), record(5, 50), record(5, 60, clean=True),
    ]  # fmt: skip
    for at in range(1, len(log)):
        before = CutOffs()
        before.begin(whole=True)
        for one in log[:at]:
            before.see(one, one)
        after = CutOffs()
        after.restore(before.snapshot(), log[at - 1].epoch, log[at - 1].store_ms)
        if log[at - 1].is_clean_mark:
            continue  # no checkpoint is taken between it and the next life
        for one in log[at:]:
            after.see(one, one)
        after.begin_life(6, 60)
        assert after.snapshot() == told_by(*log).snapshot()


def test_without_the_begin_of_the_log_all_before_it_is_concerned() -> None:
    found = CutOffs()
    found.begin(whole=False)
    found.see(record(7, 100), record(7, 110))
    assert found.concern(100)
    assert not found.concern(101)


def test_an_older_checkpoint_says_nothing_the_end_of_its_life_does() -> None:
    for clean in (True, False):
        found = CutOffs()
        found.restore({}, 3, 50)
        found.see(record(3, 60, clean=clean), record(3, 60, clean=clean))
        found.begin_life(4, 60)
        assert found.concern(40) is not clean


def test_more_than_are_kept_count_as_one_with_what_was_between_them() -> None:
    lives = [record(epoch, 10 * epoch) for epoch in range(1, CUT_OFFS_MAX + 10)]
    found = told_by(*lives)
    assert len(found.snapshot()[CUT_OFFS_SECTION]) == 16 + 16 * CUT_OFFS_MAX
    assert all(found.concern(one.store_ms) for one in lives)
    assert not found.concern(lives[-1].store_ms + 1)


def test_a_life_that_lost_its_connections_is_concerned_up_to_then_while_it_lasts() -> None:
    found = told_by(record(1, 10), record(1, 20, clean=True))
    before = found.snapshot()
    found.lose_connections(30)
    found.lose_connections(40)
    assert [at_ms for at_ms in range(60) if found.concern(at_ms)] == list(range(20, 41))
    assert found.snapshot() == before  # how it ends tells those who read the log
    found.begin_life(3, 50)
    assert [at_ms for at_ms in range(60) if found.concern(at_ms)] == list(range(20, 51))


def test_golden_section() -> None:
    """Never changes: a new version adds a decoder and a second literal."""
    assert told_by(record(1, 10), record(1, 20)).snapshot() == {
        CUT_OFFS_SECTION: bytes.fromhex(
            "020000000000000014000000000000000a000000000000001400000000000000"
        )
    }

"""The pump: when things are written, synced, answered and ticked. Time is virtual."""

import asyncio
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path

import pytest

from latermq_broker.config.config import Flush, StoreConfig
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import Ready
from latermq_broker.errors import StoreReadOnlyError, TooManyRequestsError
from latermq_broker.pump.disk_work import DiskWork
from latermq_broker.pump.pump import Pump
from latermq_broker.store.records.record import RecordType
from latermq_broker.store.store import Store
from support.engine_rig import SMALL_STORE
from support.pump_rig import PumpRig as Rig
from support.pump_rig import settled
from support.virtual_loop import START_MS, VirtualLoop, run_virtually

SYNC_STORE = replace(SMALL_STORE, flush=Flush.SYNC)


class TestWrite:
    def test_everything_of_one_turn_goes_in_one_write(self) -> None:
        async def main() -> None:
            rig = Rig()
            await asyncio.sleep(0.001)
            before = rig.writes()
            waits = []
            for _ in range(50):
                rig.send()
                waits.append(rig.pump.written())
            assert rig.writes() == before
            await asyncio.gather(*waits)
            assert rig.writes() == before + 1
            assert rig.log.written == rig.log.end

        run_virtually(main)

    def test_with_nothing_appended_there_is_nothing_to_wait_for(self) -> None:
        async def main() -> None:
            rig = Rig()
            await rig.pump.written()  # the record of the log's life
            before = rig.writes()
            await asyncio.gather(rig.pump.written(), rig.pump.leased())
            assert rig.writes() == before

        run_virtually(main)

    def test_a_waiter_that_is_cancelled_takes_nobody_with_it(self) -> None:
        async def main() -> None:
            rig = Rig()
            await asyncio.sleep(0.001)
            rig.send()

            async def wait() -> None:
                await rig.pump.written()

            tasks = [asyncio.create_task(wait()) for _ in range(3)]
            await asyncio.sleep(0)
            tasks[1].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [isinstance(result, asyncio.CancelledError) for result in results] == [
                False, True, False,
            ]  # fmt: skip

        run_virtually(main)


class TestFlush:
    def test_async_answers_after_the_write_and_syncs_later(self) -> None:
        async def main() -> None:
            rig = Rig()
            await asyncio.sleep(1)
            before = rig.syncs()
            rig.send()
            assert await settled(rig.pump.written())
            assert rig.syncs() == before
            await asyncio.sleep(0.199)
            assert rig.syncs() == before
            await asyncio.sleep(0.002)
            assert rig.syncs() == before + 1
            assert rig.log.durable == rig.log.end

        run_virtually(main)

    def test_async_syncs_early_when_much_is_unsynced(self) -> None:
        async def main() -> None:
            rig = Rig(replace(SMALL_STORE, sync_bytes=100_000))
            await asyncio.sleep(1)
            before = rig.syncs()
            for _ in range(4):
                rig.send(size=30_000)
                await rig.pump.written()
            await asyncio.sleep(0.001)
            assert rig.syncs() == before + 1

        run_virtually(main)

    def test_sync_answers_only_after_a_sync_and_leases_do_not_wait(self) -> None:
        async def main() -> None:
            rig = Rig(SYNC_STORE)
            rig.threads.held = True
            rig.send()
            written, leased = rig.pump.written(), rig.pump.leased()
            assert await settled(leased)
            assert not await settled(written)
            rig.threads.release()
            assert await settled(written)

        run_virtually(main)

    def test_who_needs_the_disk_gets_a_sync_under_async_too(self) -> None:
        async def main() -> None:
            rig = Rig()
            rig.threads.held = True
            rig.send()
            synced = rig.pump.synced()
            assert not await settled(synced)
            rig.threads.release()
            assert await settled(synced)
            assert rig.log.durable == rig.log.end
            before = rig.syncs()
            assert await settled(rig.pump.synced())
            assert rig.syncs() == before

        run_virtually(main)

    def test_who_comes_during_a_sync_shares_the_next_one(self) -> None:
        async def main() -> None:
            rig = Rig(SYNC_STORE)
            rig.threads.held = True
            rig.send()
            first = asyncio.ensure_future(rig.pump.written())
            await asyncio.sleep(0.001)
            later = []
            for _ in range(20):
                rig.send()
                later.append(asyncio.ensure_future(rig.pump.written()))
                await asyncio.sleep(0.001)
            assert rig.threads.waiting_count == 1
            before = rig.syncs()
            rig.threads.release()
            await asyncio.gather(first, *later)
            # The first sync took its target when it ran, after all were written, or one followed.
            assert rig.syncs() - before <= 2

        run_virtually(main)

    def test_an_idle_mark_follows_the_last_sync_once(self) -> None:
        async def main() -> None:
            rig = Rig()
            rig.send()
            await asyncio.sleep(0.25)
            end = rig.log.end
            await asyncio.sleep(0.1)
            assert rig.log.read(end).type is RecordType.MARK
            marked = rig.log.end
            await asyncio.sleep(10)
            assert rig.log.end == marked
            assert rig.log.durable == marked

        run_virtually(main)

    def test_too_much_unsynced_refuses_sends_until_the_disk_catches_up(self) -> None:
        async def main() -> None:
            rig = Rig(replace(SMALL_STORE, unsynced_bytes_max=50_000, sync_bytes=10_000))
            rig.threads.held = True
            rig.send(size=60_000)
            await rig.pump.written()
            with pytest.raises(TooManyRequestsError):
                rig.pump.admit()
            rig.threads.release()
            await asyncio.sleep(0.001)
            rig.pump.admit()

        run_virtually(main)

    def test_too_much_unsynced_keeps_what_is_due_until_the_disk_catches_up(self) -> None:
        """What a tick writes would wait in memory, as long as an engine is away."""

        async def main() -> None:
            rig = Rig(replace(SMALL_STORE, unsynced_bytes_max=50_000, sync_bytes=10_000))
            rig.send(wait_ms=1_000)
            await asyncio.sleep(0.5)
            rig.threads.held = True
            rig.send(size=60_000)
            await rig.pump.written()
            end = rig.log.end
            await asyncio.sleep(10)
            assert rig.log.end == end
            assert rig.receive() == 1
            rig.threads.release()
            await asyncio.sleep(0.2)
            assert rig.receive() == 1

        run_virtually(main)


class TestFailure:
    @pytest.mark.parametrize(
        ("broken", "store"),
        [("pwrite", SMALL_STORE), ("pwrite", SYNC_STORE), ("datasync", SYNC_STORE)],
    )
    def test_whoever_waits_is_told_and_nothing_is_tried_again(
        self, broken: str, store: StoreConfig
    ) -> None:
        async def main() -> None:
            rig = Rig(store)
            rig.files.broken = broken
            rig.send()
            with pytest.raises(StoreReadOnlyError):
                await rig.pump.written()
            assert len(rig.failures) == 1
            rig.files.broken = ""
            with pytest.raises(StoreReadOnlyError):
                rig.send()
            with pytest.raises(StoreReadOnlyError):
                await rig.pump.written()
            before = rig.writes(), rig.syncs()
            await asyncio.sleep(100)
            assert (rig.writes(), rig.syncs()) == before
            assert len(rig.failures) == 1

        run_virtually(main)

    def test_a_failed_sync_in_the_background_ends_an_async_broker_too(self) -> None:
        async def main() -> None:
            rig = Rig()
            rig.send()
            await rig.pump.written()
            rig.files.broken = "datasync"
            await asyncio.sleep(1)
            assert [type(failure) for failure in rig.failures] == [StoreReadOnlyError]

        run_virtually(main)

    def test_a_bug_in_waking_receives_does_not_stop_the_writes(self) -> None:
        async def main() -> None:
            rig = Rig()

            def fail(ready: Ready) -> None:
                raise KeyError("bug")

            rig.pump.on_ready = fail
            rig.send()
            await rig.pump.written()
            assert rig.failures == []

        run_virtually(main)


class TestTick:
    @pytest.mark.parametrize("wait_ms", [1, 7, 999, 86_400_000])
    def test_a_delayed_message_wakes_receives_when_due_and_not_before(self, wait_ms: int) -> None:
        async def main() -> None:
            rig = Rig()
            woken: list[int] = []

            def on_ready(ready: Ready) -> None:
                if rig.receive():
                    woken.append(rig.clock.now_ms())

            rig.pump.on_ready = on_ready
            rig.send(wait_ms=wait_ms)
            await rig.pump.written()
            await asyncio.sleep(wait_ms / 1_000 + 1)
            assert woken == [START_MS + wait_ms]
            assert rig.log.written == rig.log.end

        run_virtually(main)

    def test_an_earlier_deadline_moves_the_tick_forward(self) -> None:
        async def main() -> None:
            rig = Rig()
            rig.send(wait_ms=60_000)
            await rig.pump.written()
            rig.send(wait_ms=5)
            await rig.pump.written()
            await asyncio.sleep(0.006)
            assert rig.receive() == 1

        run_virtually(main)

    def test_a_lease_ends_with_nobody_asking(self) -> None:
        async def main() -> None:
            rig = Rig()
            rig.send()
            assert rig.receive(invisible_ms=50) == 1
            await rig.pump.leased()
            await asyncio.sleep(0.049)
            assert rig.receive() == 0
            await asyncio.sleep(0.002)
            assert rig.receive() == 1

        run_virtually(main)

    def test_a_send_wakes_in_the_same_turn_and_the_lease_is_in_its_write(self) -> None:
        async def main() -> None:
            rig = Rig()
            await asyncio.sleep(1)
            taken: list[int] = []

            def on_ready(ready: Ready) -> None:
                taken.append(rig.receive())
                rig.pump.leased()

            rig.pump.on_ready = on_ready
            before = rig.writes()
            rig.send()
            await rig.pump.written()
            assert taken == [1]
            assert rig.writes() == before + 1

        run_virtually(main)

    def test_in_the_end_it_says_that_all_went_out_and_begins_nothing_more(self) -> None:
        async def main() -> None:
            rig = Rig()
            rig.send(wait_ms=10)
            rig.send()
            assert await settled(rig.pump.conclude(drained=True))
            assert rig.log.durable == rig.log.end
            assert rig.log.read(rig.log.last_position).is_clean_mark
            await asyncio.sleep(1)
            assert rig.log.read(rig.log.last_position).is_clean_mark, "the delayed one became due"
            await rig.pump.stop()
            assert not rig.failures

        run_virtually(main)

    def test_what_is_announced_while_receives_are_woken_has_the_next_turn(self) -> None:
        async def main() -> None:
            rig = Rig()
            await asyncio.sleep(1)
            seen: list[AbstractSet[str]] = []

            def on_ready(ready: Ready) -> None:
                seen.append(ready.topics)
                if len(seen) < 3:
                    rig.engine.announced.topics.add(1)

            rig.pump.on_ready = on_ready
            rig.send()
            await rig.pump.written()
            assert len(seen) == 1
            await asyncio.sleep(0.001)
            assert seen == [seen[0]] * 3

        run_virtually(main)

    def test_what_was_overdue_at_the_start_is_done_at_once(self) -> None:
        async def main() -> None:
            rig = Rig()
            rig.send(wait_ms=10)
            rig.engine.write()
            rig.engine.store.abandon()
            await asyncio.sleep(1)
            store = Store.open(Path("/data"), rig.config.store, rig.files, rig.clock.now_ms())
            rig.engine = Engine.open(store, rig.config, rig.clock.now_ms())
            disk = DiskWork(rig.engine, rig.clock, rig.config.store, rig.threads)
            pump = Pump(rig.engine, rig.clock, rig.config, disk, rig.failures.append)
            pump.start()
            await asyncio.sleep(0.001)
            assert rig.receive() == 1

        run_virtually(main)

    def test_on_a_full_disk_what_is_due_waits_and_comes_when_there_is_room(self) -> None:
        async def main() -> None:
            rig = Rig()
            rig.send(wait_ms=1_000)
            rig.files.disk.capacity_bytes = rig.files.disk.used_bytes
            rig.fill()
            await rig.pump.written()
            woken: list[int] = []

            def on_ready(ready: Ready) -> None:
                woken.append(rig.clock.now_ms() - START_MS)

            await asyncio.sleep(0.5)
            rig.pump.on_ready = on_ready
            await asyncio.sleep(5.2)
            assert woken == []
            assert rig.failures == []
            rig.files.disk.capacity_bytes = None
            await asyncio.sleep(1)
            assert len(woken) == 1
            assert 5_700 < woken[0] <= 6_700

        run_virtually(main)


class TestClockJumps:
    def test_set_forward_what_became_due_fires_within_a_second(self) -> None:
        async def main() -> None:
            rig = Rig()
            rig.send(wait_ms=1_800_000)
            await rig.pump.written()
            assert rig.receive() == 0
            rig.clock.wall_offset_ms = 3_600_000
            await asyncio.sleep(1.1)
            assert rig.receive() == 1

        run_virtually(main)

    def test_set_back_it_waits_for_the_time_of_day(self) -> None:
        async def main() -> None:
            rig = Rig()
            rig.send(wait_ms=10_000)
            await rig.pump.written()
            rig.clock.wall_offset_ms = -3_600_000
            await asyncio.sleep(3_609)
            assert rig.receive() == 0
            await asyncio.sleep(1.1)
            assert rig.receive() == 1

        run_virtually(main)


class TestDisk:
    def test_checkpoints_are_taken_when_due_and_not_without_need(self) -> None:
        async def main() -> None:
            rig = Rig(replace(SMALL_STORE, checkpoint_interval_ms=5_000))
            rig.send()
            await rig.pump.written()
            await asyncio.sleep(7)
            checkpoints = [path for path in rig.files.inodes if path.suffix == ".ckpt"]
            assert len(checkpoints) == 1
            await asyncio.sleep(60)
            assert [path for path in rig.files.inodes if path.suffix == ".ckpt"] == checkpoints

        run_virtually(main)

    def test_the_next_segment_is_prepared_when_half_of_this_one_is_used(self) -> None:
        async def main() -> None:
            rig = Rig()
            await asyncio.sleep(3)
            assert not rig.prepared()
            for _ in range(10):
                rig.send(size=60_000)
            await rig.pump.written()
            await asyncio.sleep(1.1)
            assert rig.prepared()

        run_virtually(main)

    def test_housekeeping_comes_every_second_and_survives_a_bug(self) -> None:
        async def main() -> None:
            rig = Rig()
            seen: list[int] = []

            def on_second() -> None:
                seen.append(rig.clock.now_ms() - START_MS)
                raise KeyError("bug")

            rig.pump.on_second = on_second
            await asyncio.sleep(3.5)
            assert seen == [1_000, 2_000, 3_000]

        run_virtually(main)

    def test_stop_writes_what_is_left_and_leaves_nothing_running(self) -> None:
        async def main() -> None:
            rig = Rig(SYNC_STORE)
            rig.threads.held = True
            rig.send(wait_ms=60_000)
            written = asyncio.ensure_future(rig.pump.written())
            asyncio.get_running_loop().call_later(0.5, rig.threads.release)
            await rig.pump.stop()
            await written
            assert rig.log.durable == rig.log.end
            rig.engine.close(rig.clock.now_ms())
            assert asyncio.all_tasks() == {asyncio.current_task()}

        run_virtually(main)


def test_a_standstill_of_the_loop_is_told_to_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        rig, loop = Rig(), asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        hearing = rig.engine.hearing
        await asyncio.sleep(60)
        assert hearing.missed_since_ms(0) == 0  # time that passes is none
        loop.stand_still(90_000)
        now_ms = rig.pump.now_ms()
        assert 88_000 <= hearing.missed_since_ms(0) <= 90_000
        assert hearing.judged_ms(now_ms, 10_000) <= now_ms - 88_000
        await asyncio.sleep(60)
        loop.stand_still(90_000)  # and the timer of the pump is the first that looks
        await asyncio.sleep(0.001)
        assert 176_000 <= hearing.missed_since_ms(0) <= 180_000
        await rig.pump.stop()

    run_virtually(scenario)
    assert caplog.text.count("the broker stood still") == 2

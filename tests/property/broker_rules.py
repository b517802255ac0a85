"""What happens to brokers: time, clocks that jump, checkpoints, segments that fill and go, disks
that fill, restarts and crashes, another retention at a start."""

from contextlib import suppress

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from latermq_broker.catalog.catalog import UNSET, TopicTimes
from latermq_broker.delivery.halves import HalfEvent, HalfState, transaction_id
from latermq_broker.engine.state.model import Outgoing
from latermq_broker.errors import StoreFullError, TooManyRequestsError
from latermq_broker.schedule.run_merge import merge_runs
from latermq_broker.store.files import Space
from latermq_broker.store.offline.inspect import verify_directory
from support.engine_bench import DIRECTORY, LOST, TOPIC, Bench
from support.engine_facts import facts
from support.group_model import Group
from support.memory_files import lose_checkpoints

HOUR_MS = 3_600_000
MINUTE_MS = 60_000  # longer than a lease
RETENTIONS_MS = (0, 0, 5_000, 20_000)
UNREAD_TIMES = (1, 1, 0, 3)


class BrokerRules(Bench):
    @rule(step_ms=st.one_of(st.integers(0, 2_000), st.integers(0, 2_000), st.integers(0, 90_000)))
    def time_passes(self, step_ms: int) -> None:
        self.now_ms += step_ms
        self.tick()

    @precondition(lambda self: self.model.deadlines(self.wall_ahead_ms))
    @rule(draw=st.data(), before=st.sampled_from([0, 1]))
    def time_passes_until_something_is_due(self, draw: st.DataObject, before: int) -> None:
        self.wait_until_due(draw, before)

    @rule(ahead_ms=st.sampled_from([0, 1_000, -1_000, HOUR_MS, -HOUR_MS]))
    def wall_clock_jumps(self, ahead_ms: int) -> None:
        """Nothing that lasts a while ends earlier or later by it.

        A step is later than all that was stored before it: by a millisecond, if need be.
        """
        self.now_ms = max(self.now_ms, self.engine._state.store.log.last_store_ms + 1)
        self.wall_ahead_ms = self.engine.wall.ahead_ms = ahead_ms
        self.tick()

    @rule(
        step_ms=st.integers(0, 20_000),
        asks=st.lists(st.booleans(), min_size=3, max_size=6),
    )
    def producers_are_asked(self, step_ms: int, asks: list[bool]) -> None:
        """Some are there to be asked, for others nobody is."""
        self.time_passes(step_ms)
        wanted = self.engine.transactions.waiting(TOPIC, 100)
        halves = filter(None, map(self.engine._state.halves.get, wanted))
        names = {transaction_id(half.first, half.id_hash) for half in halves}
        assert names == self.model.due_checks(self.now_ms)
        for first, ask in zip(wanted, asks, strict=False):
            check = self.engine.transactions.check(first, self.now_ms)
            assert check is not None
            half = self.model.halves[check.transaction_id]
            assert (check.sys.decode(), check.check) == (
                half.message.name,
                half.checks + 1,
            )
            if ask:
                self.engine.transactions.asked(first, "producer", self.now_ms)
                self.model.asked(half, self.now_ms)

    # --- segments and disks --------------------------------------------------------------------

    @rule()
    def take_checkpoint(self) -> None:
        self.engine.checkpoints.take(self.now_ms)
        arguments = self.engine.checkpoints.merge_arguments()
        if arguments:
            merge_runs(
                self.files,
                self.engine.store.runs_directory,
                int(arguments[1]),
                arguments[2],
                arguments[3:],
            )
            self.engine.checkpoints.adopt_merge(arguments)

    @rule(count=st.integers(1, 40))
    def others_send(self, count: int) -> None:
        """What fills segments."""
        self.fill(count)

    @rule(free_percent=st.sampled_from([2, 8, 50, 50, 50]))
    def look_at_disk(self, free_percent: int) -> None:
        disk = self.engine.store.disk
        total = 100 * self.engine.store.log.segments[0].size
        disk.look(Space(total * free_percent // 100, total))

    @rule(segments=st.integers(1, 3), step_ms=st.sampled_from([1_000, 6_000]))
    def segments_grow_old(self, segments: int, step_ms: int) -> None:
        """What waits in them, or is held or dead, is rolled forward, if retention is on."""
        for _ in range(segments):
            self.fill(14)
            self.take_checkpoint()
            self.time_passes(step_ms)
        for _ in range(10):
            self.time_passes(100)

    # --- lives ---------------------------------------------------------------------------------

    @rule(
        read_ms=st.sampled_from((UNSET, UNSET, 0, 3_000, 60_000)),
        unread_times=st.sampled_from((UNSET, UNSET, 0, 1, 3)),
    )
    def messages_stay_for_another_time(self, read_ms: int, unread_times: int) -> None:
        """A setting of the topic; what a pass of retention found before counts no more."""
        effective_ms = self.retention_ms if read_ms == UNSET else read_ms
        unread_ms = unread_times * effective_ms if unread_times > 0 else unread_times
        self.own_ages = TopicTimes(read_ms, unread_ms)
        self.engine.topics.alter(TOPIC, None, 0, self.now_ms, self.own_ages)
        self.engine.write()
        self.expiring = self.expiring or bool(effective_ms)

    @initialize(retention_ms=st.sampled_from(RETENTIONS_MS), times=st.sampled_from(UNREAD_TIMES))
    def begin(self, retention_ms: int, times: int) -> None:
        self.restart("stop", 0, retention_ms, times)

    @rule()
    def replay_beside_it(self) -> None:
        self.tick()
        self.replays_agree()

    @rule(
        how=st.sampled_from(
            ["stop", "stop", "cut", "kill", "kill in mid batch", "kill in checkpoint", "lose"]
        ),
        jump_ms=st.sampled_from([0, 0, -HOUR_MS, HOUR_MS]),
        retention_ms=st.sampled_from(RETENTIONS_MS),
        times=st.sampled_from(UNREAD_TIMES),
    )
    def restart(self, how: str, jump_ms: int, retention_ms: int, times: int = 1) -> None:
        """`stop`: every reply went out; `cut`: in order too, but somebody did not get his.

        Args:
            times: unread messages stay so many times as long as read ones; 0: till the disk is low.
        """
        self.now_ms += 1
        self.tick()
        before, written = facts(self.engine), self.engine.store.log.written
        lost = self.engine.store.cut_offs.lost_since(self.now_ms - MINUTE_MS)
        drained = how == "stop" and not lost
        if how in ("stop", "cut"):
            self.engine.close(self.now_ms, drained=drained)
        else:
            if how == "kill in mid batch":
                self.do_what_is_never_written()
            elif how == "kill in checkpoint":
                self.engine.checkpoints.begin(self.now_ms)
            self.engine.abandon()
        if how == "lose":
            lose_checkpoints(self.files)
        assert verify_directory(DIRECTORY, self.files).ok
        self.retention_ms, self.unread_ms = retention_ms, times * retention_ms
        self.expiring = self.expiring or bool(retention_ms)
        for group in self.model.groups.values():
            group.life_ended(drained=drained)
        self.engine = self.start(self.files, back_ms=max(0, -jump_ms))
        self.recovered(before, written)
        for group in self.model.groups.values():
            if how == "lose" and self.engine.store.log.start:
                self.note_unsure(group)
        self.tick()
        self.time_passes(max(1, jump_ms))  # not both lives in one millisecond

    @rule()
    def connections_end(self) -> None:
        """All at once, as an owner without a proof ends them: who was just answered is not sure."""
        store = self.engine.store
        store.cut_offs.lose_connections(store.log.last_store_ms)
        for group in self.model.groups.values():
            group.life_ended(drained=False)
        self.time_passes(1)  # what is leased in this millisecond is in doubt, too

    def note_unsure(self, group: Group) -> None:
        """How the lives ended whose segments are gone is not known, without a checkpoint."""
        for held in group.in_state("leased"):
            if held.sure and self.engine.store.cut_offs.concern(held.leased_ms):
                held.sure, held.unsure = False, True

    def do_what_is_never_written(self) -> None:
        """Not acknowledged: I2, it is there as a whole or not at all; here, not at all."""
        lost = Outgoing(TOPIC, b"l", b"l", "l", message_group="a", dedup_id=LOST)
        with suppress(StoreFullError, TooManyRequestsError):
            self.engine.send([lost], self.now_ms)
        for name, half in self.model.halves.items():
            if half.state is HalfState.PENDING:
                self.engine.transactions.end(TOPIC, name, "", HalfEvent.COMMIT, self.now_ms)
                break
        for group, held in self.model.held("leased"):
            if held.handle:
                self.engine.ack(group.name, [held.handle], self.now_ms)
                break

"""What operators do: pending and dead messages, and the policies of groups and topics, whatever is
in flight. Each rule asks the engine and tells the model."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from latermq_broker.catalog.catalog import BackoffKind
from latermq_broker.catalog.limits import Limit, Scope
from latermq_broker.delivery.halves import HalfState
from latermq_broker.engine.state.model import (
    Backoff,
    DeadState,
    OnDead,
    PendingFilter,
    PendingKind,
    TopicType,
)
from support.engine_bench import TOPIC, Bench
from support.engine_facts import newest_letter
from support.group_model import Where

BACKOFFS = [
    Backoff(kind=BackoffKind.LADDER, delays_ms=(200, 900)),
    Backoff(kind=BackoffKind.FIXED, delays_ms=(50,)),
    Backoff(kind=BackoffKind.EXPONENTIAL, initial_ms=100, max_ms=1_500, multiplier=3.0),
]


class OperatorRules(Bench):
    # --- what waits ----------------------------------------------------------------------------

    @precondition(lambda self: self.model.at(Where.WAITS))
    @rule(
        draw=st.data(),
        kind=st.sampled_from(["recall", "cancel", "expedite", "postpone", "postpone"]),
        ticks=st.booleans(),
    )
    def change_delayed(self, draw: st.DataObject, kind: str, ticks: bool) -> None:
        """A producer recalls by what it was told when it sent; operators see what is there now."""
        message = draw.draw(st.sampled_from(self.model.at(Where.WAITS)))
        pending = self.engine.pending
        if kind in ("recall", "cancel"):
            name = message.pending_id if kind == "recall" else message.shown_id
            pending.cancel(name, self.now_ms, topic=TOPIC if kind == "recall" else "")
            message.where = Where.GONE
            return
        message.due_ms = self.wall_ms + (5_000 if kind == "postpone" else 0)
        if kind == "postpone":
            pending.postpone(message.shown_id, message.due_ms, self.now_ms)
        else:
            pending.expedite(message.name, self.now_ms)
        items, _ = pending.page(PendingFilter(kind=PendingKind.DELAYED), 1_000)
        [message.shown_id] = [
            item.pending_id for item in items if item.sys.decode() == message.name
        ]
        if ticks:
            self.tick()

    @precondition(lambda self: self.model.held("backoff", "ready"))
    @rule(draw=st.data(), cancel=st.booleans())
    def change_retry(self, draw: st.DataObject, cancel: bool) -> None:
        group, held = draw.draw(st.sampled_from(self.model.held("backoff", "ready")))
        retries = PendingFilter(kind=PendingKind.BACKOFF, group=group.name)
        items, _ = self.engine.pending.page(retries, 1_000)
        [pending_id] = [i.pending_id for i in items if i.sys.decode() == held.message.name]
        if cancel:
            self.engine.pending.cancel(pending_id, self.now_ms)
            held.state = "done"
        else:
            self.engine.pending.expedite(pending_id, self.now_ms)
            if held.state == "backoff":
                held.state, held.deadline_ms = "ready", self.now_ms
            self.tick()

    @precondition(lambda self: self.model.pending_halves())
    @rule(draw=st.data(), commit=st.booleans())
    def end_half_message(self, draw: st.DataObject, commit: bool) -> None:
        open_ones = [
            name for name, half in self.model.halves.items() if half.state is HalfState.PENDING
        ]
        name = draw.draw(st.sampled_from(open_ones))
        half, pending = self.model.halves[name], self.engine.pending
        item = (pending.commit if commit else pending.cancel)(name, self.now_ms)
        assert (item.kind, item.checks) == (PendingKind.HALF, half.checks)
        self.model.end(half, HalfState.COMMITTED if commit else HalfState.ROLLED_BACK)

    # --- what is dead --------------------------------------------------------------------------

    @precondition(lambda self: self.model.held("dead"))
    @rule(draw=st.data(), drop=st.booleans())
    def empty_dead_letters(self, draw: st.DataObject, drop: bool) -> None:
        group, held = draw.draw(st.sampled_from(self.model.held("dead")))
        letter = newest_letter(self.engine, group.name, held.message.name)
        assert letter.state is DeadState.DEAD
        assert held.letter is not None
        assert letter.parks == held.letter.parks
        if drop:
            self.engine.dead.drop(group.name, [letter.queue_offset], self.now_ms)
        else:
            self.engine.dead.redrive(group.name, letter.queue_offset, "", self.now_ms)
        group.leave_dead(held, "done" if drop else "ready", self.now_ms)

    # --- policies ------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(["everything", "only-a", "skip", "park"]),
        max_attempts=st.sampled_from([0, 0, 1, 2, 3, 4]),
        backoff=st.sampled_from([None, *BACKOFFS]),
        clear=st.booleans(),
        on_dead=st.sampled_from([None, *OnDead]),
    )
    def policy_of_group(
        self,
        name: str,
        max_attempts: int,
        backoff: Backoff | None,
        clear: bool,
        on_dead: OnDead | None,
    ) -> None:
        group = self.model.groups[name]
        on_dead = on_dead if group.on_dead else None
        changed = self.engine.groups.alter(
            name,
            max_attempts=max_attempts,
            backoff=backoff,
            clear_backoff=clear,
            now_ms=self.now_ms,
            on_dead=on_dead,
        )
        group.max_attempts = max_attempts or group.max_attempts
        group.backoff = None if clear else backoff or group.backoff
        group.on_dead = on_dead or group.on_dead
        assert (changed.max_attempts, changed.backoff) == (group.max_attempts, group.backoff)

    @rule(queues=st.integers(2, 4), type=st.sampled_from([TopicType.MIXED, TopicType.FIFO]))
    def policy_of_topic(self, queues: int, type: TopicType) -> None:
        """More queues: message groups keep theirs."""
        topic = self.engine.catalog.topic(TOPIC)
        assert topic is not None
        self.engine.topics.alter(TOPIC, type, max(queues, topic.queue_count), self.now_ms)

    @rule(most=st.integers(0, 3))
    def policy_of_clients(self, most: int) -> None:
        """0: no longer."""
        limits = self.engine.limits
        if most:
            limits.set(Limit(scope=Scope.GROUP, name="*", parked_polls=most), self.now_ms)
        elif limits.table.get(Scope.GROUP, "*") is not None:
            limits.unset(Scope.GROUP, "*", self.now_ms)

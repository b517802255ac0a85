"""The whole engine against dicts and lists, with crashes, restarts and time in any order.

The rules are those of clients, operators and brokers (`*_rules`), the model `support/engine_model`,
and `support/engine_bench` holds the two against each other. After every step the log is written, as
the pump does before it answers; a retention pass takes many ticks, and anything may happen in
between. Where each invariant of docs/reliability.md is asserted:

    I1, I2  look, recovered; refused sends      I7   look, end_transaction, what_is_open_is_pending
    I3      ClientRules.take, deaths_…_once     I8   recovered, replays_agree
    I4      Group.lease                         I9   written
    I5      look, ClientRules.take              I10  recovered (losses of power: `simulation`)
    I6      look                                I11  replays_agree        I12  recovered
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from latermq_broker.delivery.filters.filter import hash64
from latermq_broker.delivery.halves import HalfState
from latermq_broker.delivery.order.fifo import MessageGroup
from latermq_broker.engine.state.model import DeadFilter, PendingFilter, PendingKind
from property.broker_rules import BrokerRules
from property.client_rules import SORTS
from property.dedup_rules import DedupRules
from property.operator_rules import OperatorRules
from property.progress_rules import NAMES, ProgressRules
from support.engine_bench import KEYS
from support.group_model import IN_HAND, Group, Where
from support.recount import check_uses

SELDOM = [
    *(
        "send",
        "send",
        "",
        "",
        "",
        "renewed",
        "second",
        "second",
        "filter",
        "filter",
        "same",
        "back",
    ),
    *("ahead", "stop", "kill", "delay", "postpone", "expedite", "recall", "redrive", "story"),
    *("repeat", "ack", "nack", "nack", "forward"),
]


class EngineMachine(DedupRules, OperatorRules, ProgressRules, BrokerRules):
    @rule(
        draw=st.data(),
        name=NAMES,
        kinds=st.lists(st.sampled_from(SELDOM), min_size=4, max_size=12),
    )
    def a_while_of_one_group(self, draw: st.DataObject, name: str, kinds: list[str]) -> None:
        """What is seldom done, soon one after another and to one group."""
        for kind in kinds:
            if kind == "send":
                self.send(draw.draw(SORTS), 0)
                self.look()
            elif kind in ("", "renewed"):
                self.receive(name, 3, kind)
            elif kind == "second":
                self.now_ms += 1_000
                self.tick()
            elif kind == "filter":
                self.change_filter(name, draw.draw(st.sampled_from([None, frozenset("a")])))
            elif kind in ("same", "back", "ahead"):
                self.commit_offset(name, draw, kind)
            elif kind in ("stop", "kill"):
                self.restart(kind, 0, self.retention_ms)
            elif kind == "delay":
                self.send(draw.draw(SORTS), 2_000)
            elif kind in ("postpone", "expedite", "recall") and self.model.at(Where.WAITS):
                self.change_delayed(draw, kind, draw.draw(st.booleans()))
            elif kind == "redrive" and self.model.held("dead"):
                self.empty_dead_letters(draw, drop=False)
            elif kind == "story" and self.model.at(Where.QUEUE):
                self.tell_story(draw)
            elif kind == "repeat" and any(one.deadline_ms > self.now_ms for one in self.over):
                self.repeat_what_is_over(draw)
            elif kind in ("ack", "nack", "forward") and self.in_hand(name):
                self.settle(draw, name, kind)

    def settle(self, draw: st.DataObject, name: str, kind: str) -> None:
        if kind == "ack":
            self.ack(draw, name)
        elif kind == "nack":
            self.change_invisible(draw, 700, kind, name)
        else:
            self.forward(draw, draw.draw(st.booleans()), name)

    @rule(
        name=NAMES,
        how=st.sampled_from(["renewed", "renewed", "", "lost"]),
        ends=st.lists(st.sampled_from(["stop", "stop", "cut", "kill"]), min_size=1, max_size=2),
        after_ms=st.integers(0, 1_500),
        draw=st.data(),
    )
    def restart_in_mid_handler(
        self, name: str, how: str, ends: list[str], after_ms: int, draw: st.DataObject
    ) -> None:
        """Its lease is to end, or to be renewed, in another life of the broker."""
        self.receive(name, 4, how)
        for end in ends:
            self.restart(end, 0, self.retention_ms)
        self.time_passes(after_ms)
        self.receive(name, 4, "")
        if self.in_hand():
            self.ack(draw)

    def teardown(self) -> None:
        self.engine.abandon()
        assert self.files.open_count == 0

    @invariant()
    def written(self) -> None:
        self.look()
        self.engine.take_ready()
        check_uses(self.engine)  # I9

    @invariant()
    def deaths_are_in_the_dead_letters_once(self) -> None:
        """I3."""
        for group in self.model.groups.values():
            found = [
                (letter.sys.decode(), [(one.outcome, one.life) for one in letter.attempts])
                for letter in self.engine.dead.scan(
                    group.name, DeadFilter(), count_max=1_000
                ).letters
            ]
            known = [
                (letter.message.name, letter.attempts)
                for letter in group.letters
                if letter.state == "dead"
            ]
            assert sorted(name for name, _ in found) == sorted(name for name, _ in known)
            assert sorted(found) == sorted(known), "a letter tells of other attempts"

    @invariant()
    def what_waits_is_pending(self) -> None:
        counts = {
            (count.kind, count.group): count.count
            for count in self.engine.pending.count(PendingFilter(topic="orders"))
        }
        expected = {(PendingKind.DELAYED, ""): len(self.model.at(Where.WAITS))}
        expected[PendingKind.HALF, ""] = len(self.model.at(Where.HALF))
        for name, group in self.model.groups.items():
            expected[PendingKind.BACKOFF, name] = len(group.in_state("backoff", "ready"))
            expected[PendingKind.IN_FLIGHT, name] = len(group.in_state("leased"))
        assert counts == {key: count for key, count in expected.items() if count}

    @invariant()
    def what_is_open_is_pending(self) -> None:
        """I7."""
        items, _ = self.engine.pending.page(PendingFilter(kind=PendingKind.HALF), 1_000)
        assert [item.due_ms for item in items] == sorted(item.due_ms for item in items)
        found = {item.pending_id: (item.sys.decode(), item.checks, item.due_ms) for item in items}
        assert found == {
            name: (half.message.name, half.checks, half.due_ms + self.wall_ahead_ms)
            for name, half in self.model.halves.items()
            if half.state is HalfState.PENDING
        }

    @invariant()
    def gates_hold_what_is_under_way_and_nothing_else(self) -> None:
        for group in self.model.groups.values():
            group_id = self.engine.catalog.require_group(group.name).id
            for (reader, _), one in self.engine._state.subscriptions.items():
                if reader == group_id and one.gate is not None:
                    check_gate(group, one.gate.groups)


def check_gate(group: Group, gates: dict[int, MessageGroup]) -> None:
    names = {hash64(key): key for key in KEYS if key}
    assert {key for key in KEYS if group.parked(key)} <= {names[key] for key in gates}
    for order_key, gate in gates.items():
        key = names[order_key]
        mine = [held for held in group.held.values() if held.message.key == key]
        live = sum(held.state in (*IN_HAND, "ready") for held in mine)
        assert len(gate.live) == live
        assert gate.busy == sum(held.state in IN_HAND for held in mine)
        assert bool(gate.parked) == bool(group.parked(key))
        assert live or len(gate.held) or gate.parked


TestShortLives = EngineMachine.TestCase
TestShortLives.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


class LongMachine(EngineMachine):
    """Run the rules of `EngineMachine` for twice as many steps."""


TestLongLives = LongMachine.TestCase
TestLongLives.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)

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

from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant

from latermq_broker.delivery.fifo import MessageGroup
from latermq_broker.delivery.filter import hash64
from latermq_broker.delivery.transaction import HalfState
from latermq_broker.engine import leasing, ordered_lane
from latermq_broker.engine.model import DeadFilter, PendingFilter, PendingKind
from property.broker_rules import BrokerRules
from property.client_rules import ClientRules
from property.operator_rules import OperatorRules
from support.engine_bench import KEYS
from support.engine_model import IN_HAND, Group, Where
from support.native import small_limits
from support.recount import check_uses

pytestmark = pytest.mark.usefixtures("small_runs", "short_scans")


class EngineMachine(ClientRules, OperatorRules, BrokerRules):
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
            dead = sorted(held.message.name for held in group.in_state("dead"))
            letters = self.engine.dead.scan(group.name, DeadFilter(), count_max=1_000).letters
            assert sorted(letter.sys.decode() for letter in letters) == dead
            assert all(len(letter.attempts) >= letter.attempt_count for letter in letters)

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
            group_id = self.engine.groups.get(group.name).id
            for (reader, _), one in self.engine._state.subscriptions.items():
                if reader == group_id and one.gate is not None:
                    check_gate(group, one.gate.groups)


def check_gate(group: Group, gates: dict[int, MessageGroup]) -> None:
    names = {hash64(key): key for key in KEYS if key}
    assert {key for key, dead in group.parked.items() if dead} <= {names[key] for key in gates}
    for order_key, gate in gates.items():
        key = names[order_key]
        mine = [held for held in group.held.values() if held.message.key == key]
        live = sum(held.state in (*IN_HAND, "ready") for held in mine)
        assert len(gate.live) == live
        assert gate.busy == sum(held.state in IN_HAND for held in mine)
        assert bool(gate.parked) == bool(group.parked.get(key))
        assert live or len(gate.held) or gate.parked


@pytest.fixture(autouse=True, scope="module")
def short_scans() -> Iterator[None]:
    """A few entries at a time, so that examples reach the ends of scans."""
    with small_limits() as assign:
        assign(ordered_lane, "SCAN_MAX", 4)
        assign(ordered_lane, "SCANNED_UNWRITTEN_MAX", 2)
        assert leasing.SCAN_MAX > 4
        yield


TestShortLives = EngineMachine.TestCase
TestShortLives.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


class LongMachine(EngineMachine):
    """The same for longer."""


TestLongLives = LongMachine.TestCase
TestLongLives.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)

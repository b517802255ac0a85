"""Half messages against a dict, with crashes, checkpoints, retention and time in any order.

After every step the log is written. Held after each: a half message is delivered exactly when it
was committed, once; the same end again changes nothing and the contrary is refused; a producer is
asked no more often than allowed and not before the check is due; what is open is pending; the
segments' counters are a recount. After each recovery, with checkpoints or from the log alone, the
state is the one that was there before.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latermq_broker.config import CatalogConfig, Config, TransactionConfig
from latermq_broker.delivery.transaction import HalfEvent, HalfState
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.model import Outgoing, PendingFilter, PendingKind, ReceiveRequest
from latermq_broker.errors import InvalidTransactionIdError, TooManyRequestsError
from latermq_broker.store.inspect import verify_directory
from latermq_broker.store.store import Store
from property.test_engine_model import facts
from support.engine_rig import short_store
from support.memory_files import MemoryFiles
from support.recount import check_uses

TOPIC = "orders"
DIRECTORY = Path("/data")
CHECK_MS = 30_000
CHECKS_MAX = 2
AGE_MS = 400_000
OPEN_MAX = 12
RETENTION_MS = 60_000
CONFIG = Config(
    store=short_store(retention_ms=RETENTION_MS, disk_low_percent=0, disk_full_percent=0),
    transaction=TransactionConfig(
        check_interval_ms=CHECK_MS,
        checks_max=CHECKS_MAX,
        age_ms_max=AGE_MS,
        half_messages_max=OPEN_MAX,
    ),
    catalog=CatalogConfig(default_queue_count=2),
)
ENDS = {HalfEvent.COMMIT: HalfState.COMMITTED, HalfEvent.ROLLBACK: HalfState.ROLLED_BACK}


@dataclass
class Half:
    name: str
    stored_ms: int
    due_ms: int  # of its next check
    checks: int = 0
    state: HalfState = HalfState.PENDING
    received: bool = False


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.now_ms = 1_700_000_000_000
        self.halves: dict[str, Half] = {}  # by transaction id, oldest first
        self.engine = self.open()
        self.engine.ensure_topic(TOPIC, self.now_ms)
        self.engine.ensure_group("billing", self.now_ms)
        self.engine.write()

    def teardown(self) -> None:
        self.engine.abandon()
        assert self.files.open_count == 0

    def open(self, before: dict[str, object] | None = None) -> Engine:
        store = Store.open(DIRECTORY, CONFIG.store, self.files, self.now_ms)
        engine = Engine.open(store, CONFIG, self.now_ms)
        assert before in (None, facts(engine))
        self.tick(engine)
        return engine

    def tick(self, engine: Engine) -> None:
        while (deadline_ms := engine.tick(self.now_ms)) is not None:
            if deadline_ms > self.now_ms:
                break
        engine.write()
        for half in self.halves.values():
            end_ms = max(half.stored_ms + AGE_MS, half.due_ms)  # who was asked has time to answer
            if half.state is HalfState.PENDING and end_ms <= self.now_ms:
                half.state = HalfState.ROLLED_BACK

    @property
    def open_ids(self) -> list[str]:
        return [name for name, half in self.halves.items() if half.state is HalfState.PENDING]

    # --- producers -----------------------------------------------------------------------------

    @rule(count=st.integers(1, 3), first_check_ms=st.sampled_from([0, 1, 5_000, 3_600_000]))
    def send(self, count: int, first_check_ms: int) -> None:
        names = [f"m{len(self.halves) + index}" for index in range(count)]
        outgoing = [
            Outgoing(
                topic=TOPIC,
                rest=name.encode() * 200,
                sys=name.encode(),
                message_id=name,
                first_check_ms=first_check_ms,
            )
            for name in names
        ]
        over = len(self.open_ids) + count - OPEN_MAX
        in_vain = sorted(
            (half.due_ms, name)
            for name, half in self.halves.items()
            if half.state is HalfState.PENDING and half.checks == CHECKS_MAX
        )
        if over > len(in_vain):
            before = self.engine.store.log.end
            with pytest.raises(TooManyRequestsError, match="12 transactions are open"):
                self.engine.transactions.send(outgoing, self.now_ms)
            assert self.engine.store.log.end == before
            return
        sent = self.engine.transactions.send(outgoing, self.now_ms)
        still_open = {f"t-{half.first:x}" for half in self.engine._state.halves}
        gone = [name for _, name in in_vain if name not in still_open]
        assert len(gone) == max(over, 0)
        for name in gone:
            self.halves[name].state = HalfState.ROLLED_BACK
        for name, one in zip(names, sent, strict=True):
            wait_ms = first_check_ms or CONFIG.transaction.first_check_ms
            due_ms = self.now_ms + min(wait_ms, AGE_MS)
            self.halves[one.transaction_id] = Half(name, self.now_ms, due_ms)

    @precondition(lambda self: self.halves)
    @rule(draw=st.data(), event=st.sampled_from(sorted(ENDS)), told=st.booleans())
    def end(self, draw: st.DataObject, event: HalfEvent, told: bool) -> None:
        name = draw.draw(st.sampled_from(sorted(self.halves)))
        half = self.halves[name]
        message_id = half.name if told else ""
        end = self.engine.transactions.end
        with pytest.raises(InvalidTransactionIdError):
            end(TOPIC, name, "another", event, self.now_ms)
        if half.state not in (HalfState.PENDING, ENDS[event]):
            with pytest.raises(InvalidTransactionIdError, match="already"):
                end(TOPIC, name, message_id, event, self.now_ms)
            return
        for _ in range(2):  # clients repeat it
            assert end(TOPIC, name, message_id, event, self.now_ms) is ENDS[event]
        half.state = ENDS[event]

    @rule(
        step_ms=st.integers(0, 2 * CHECK_MS), asks=st.lists(st.booleans(), min_size=3, max_size=6)
    )
    def ask_producers(self, step_ms: int, asks: list[bool]) -> None:
        """Some are there to be asked, for others nobody is."""
        self.time_passes(step_ms)
        due = {
            name
            for name, half in self.halves.items()
            if half.state is HalfState.PENDING
            and half.due_ms <= self.now_ms
            and half.checks < CHECKS_MAX
        }
        wanted = self.engine.transactions.waiting(TOPIC, 100)
        assert {f"t-{first:x}" for first in wanted} == due
        for first, ask in zip(wanted, asks, strict=False):
            check = self.engine.transactions.check(first, self.now_ms)
            assert check is not None
            half = self.halves[check.transaction_id]
            assert (check.sys.decode(), check.check) == (half.name, half.checks + 1)
            if ask:
                self.engine.transactions.asked(first, "producer", self.now_ms)
                half.checks += 1
                half.due_ms = self.now_ms + CHECK_MS
                if half.checks == CHECKS_MAX:
                    half.due_ms = max(half.due_ms, half.stored_ms + AGE_MS)

    # --- others --------------------------------------------------------------------------------

    @rule()
    def receive(self) -> None:
        request = ReceiveRequest("billing", TOPIC, "client", 32, 1_000)
        for one in self.engine.receive(request, self.now_ms):
            [half] = [half for half in self.halves.values() if half.name == one.sys.decode()]
            assert half.state is HalfState.COMMITTED
            assert not half.received
            assert one.rest == half.name.encode() * 200
            half.received = True
            assert self.engine.ack("billing", [one.handle], self.now_ms) == [None]

    @precondition(lambda self: self.open_ids)
    @rule(draw=st.data(), commit=st.booleans())
    def operate(self, draw: st.DataObject, commit: bool) -> None:
        name = draw.draw(st.sampled_from(self.open_ids))
        pending = self.engine.pending
        item = (pending.commit if commit else pending.cancel)(name, self.now_ms)
        half = self.halves[name]
        assert (item.kind, item.checks) == (PendingKind.HALF, half.checks)
        half.state = HalfState.COMMITTED if commit else HalfState.ROLLED_BACK

    @rule(step_ms=st.integers(0, 8_000))
    def time_passes(self, step_ms: int) -> None:
        self.receive()  # what expires unread is not this model's
        self.now_ms += step_ms
        self.tick(self.engine)

    @rule(segments=st.integers(1, 3))
    def segments_grow_old(self, segments: int) -> None:
        filler = Outgoing(topic="other", rest=b"x" * 1_000, sys=b"", message_id="x")
        for _ in range(segments * 14):
            self.engine.send([filler], self.now_ms)
        self.engine.write()
        self.checkpoint()
        self.time_passes(RETENTION_MS)
        for _ in range(20):
            self.time_passes(100)
        self.checkpoint()

    @rule()
    def checkpoint(self) -> None:
        self.engine.checkpoints.take(self.now_ms)

    @rule(how=st.sampled_from(["stop", "kill", "kill in mid batch", "lose"]))
    def restart(self, how: str) -> None:
        if how == "kill in mid batch":  # not acknowledged, not written: never happened
            before = facts(self.engine)
            for name in self.open_ids[:1]:
                self.engine.transactions.end(TOPIC, name, "", HalfEvent.COMMIT, self.now_ms)
            self.engine.abandon()
        else:
            before = facts(self.engine)
            self.engine.close(self.now_ms) if how == "stop" else self.engine.abandon()
        if how == "lose":
            for path in [path for path in self.files.inodes if path.suffix == ".ckpt"]:
                del self.files.inodes[path]
        assert verify_directory(DIRECTORY, self.files).ok
        self.engine = self.open(before)

    # --- what always holds ---------------------------------------------------------------------

    @invariant()
    def counted(self) -> None:
        self.engine.write()
        check_uses(self.engine)

    @invariant()
    def what_is_open_is_pending(self) -> None:
        filter = PendingFilter(kind=PendingKind.HALF)
        items, _ = self.engine.pending.page(filter, 1_000)
        assert [item.due_ms for item in items] == sorted(item.due_ms for item in items)
        found = {item.pending_id: (item.sys.decode(), item.checks, item.due_ms) for item in items}
        assert found == {
            name: (half.name, half.checks, half.due_ms)
            for name, half in self.halves.items()
            if half.state is HalfState.PENDING
        }
        counts = self.engine.pending.count(filter)
        assert sum(count.count for count in counts) == len(items)


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)

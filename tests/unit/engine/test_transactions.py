"""Half messages in the engine: ends, checks, restarts, limits."""

import pytest

from latermq_broker.config.config import TransactionConfig
from latermq_broker.delivery.halves import HalfEvent, HalfState
from latermq_broker.engine.state.model import (
    Outgoing,
    PendingFilter,
    PendingItem,
    PendingKind,
    Sent,
)
from latermq_broker.errors import (
    InvalidTransactionIdError,
    MessageNotFoundError,
    PreconditionFailedError,
    TooManyRequestsError,
    TopicNotFoundError,
)
from support.engine_facts import waits_of
from support.engine_rig import EngineRig
from support.recount import check_uses

COMMIT, ROLLBACK = HalfEvent.COMMIT, HalfEvent.ROLLBACK
HOUR_MS = 3_600_000


class TransactionRig(EngineRig):
    def half(self, name: str = "m-1", *, first_check_ms: int = 0, topic: str = "orders") -> Sent:
        message = Outgoing(topic, b"body", name.encode(), name, first_check_ms=first_check_ms)
        (sent,) = self.engine.transactions.send([message], self.now_ms)
        self.engine.write()
        return sent

    def end(self, sent: Sent, event: HalfEvent, name: str = "m-1") -> HalfState:
        end = self.engine.transactions.end
        state = end("orders", sent.transaction_id, name, event, self.now_ms)
        self.engine.write()
        return state

    def wanted(self) -> list[int]:
        transactions = self.engine.transactions
        return [
            first
            for topic in transactions.waiting_topics()
            for first in transactions.waiting(topic, 100)
        ]

    def ask(self, client: str = "producer-1") -> int:
        """Ask for all that wait; how many did."""
        wanted = self.wanted()
        for first in wanted:
            assert self.engine.transactions.check(first, self.now_ms) is not None
            self.engine.transactions.asked(first, client, self.now_ms)
        self.engine.write()
        return len(wanted)

    def halves(self) -> list[PendingItem]:
        return self.engine.pending.page(PendingFilter(kind=PendingKind.HALF), 100)[0]


def test_a_half_message_is_seen_by_nobody() -> None:
    rig = TransactionRig()
    sent = rig.half()
    assert (sent.queue_id, sent.queue_offset, sent.pending_id) == (-1, -1, "")
    assert sent.transaction_id.startswith(f"t-{sent.position:x}-")
    assert rig.names() == []
    assert rig.engine.topics.describe("orders").message_count == 0


@pytest.mark.parametrize("restart", [False, True])
def test_a_commit_delivers_and_costs_no_body(restart: bool) -> None:
    rig = TransactionRig()
    sent = rig.half()
    if restart:
        rig.crash()
    before = rig.engine.store.log.end
    assert rig.end(sent, COMMIT) is HalfState.COMMITTED
    assert rig.engine.store.log.end - before == 88
    if restart:
        rig.crash()
    assert rig.names() == ["m-1"]
    check_uses(rig.engine)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("event", [COMMIT, ROLLBACK])
def test_the_same_end_again_changes_nothing(event: HalfEvent, restart: bool) -> None:
    rig = TransactionRig()
    sent = rig.half()
    end = rig.end(sent, event)
    if restart:
        rig.checkpoint()
        rig.crash()
    before = rig.engine.store.log.end
    assert rig.end(sent, event) is end
    assert rig.engine.store.log.end == before
    assert rig.names() == (["m-1"] if event is COMMIT else [])


@pytest.mark.parametrize(("first", "second"), [(COMMIT, ROLLBACK), (ROLLBACK, COMMIT)])
def test_the_contrary_end_is_refused_with_what_happened(
    first: HalfEvent, second: HalfEvent
) -> None:
    rig = TransactionRig()
    sent = rig.half()
    done = rig.end(sent, first).name.lower().replace("_", " ")
    with pytest.raises(InvalidTransactionIdError, match=f"{sent.transaction_id} is {done} already"):
        rig.end(sent, second)


def test_what_is_no_transaction_of_that_message_and_topic() -> None:
    rig = TransactionRig()
    sent = rig.half()
    end = rig.engine.transactions.end
    for topic, name, message_id in (
        ("orders", "", "m-1"),
        ("orders", "m-2", "m-1"),
        ("mails", "m-1", "m-1"),
        ("orders", "t-0", "m-1"),
        ("orders", "t-" + "x" * 100, "m-1"),
        ("orders", sent.transaction_id, "m-2"),
        ("mails", sent.transaction_id, "m-1"),
    ):
        with pytest.raises(InvalidTransactionIdError, match=f"topic {topic} has no transaction"):
            end(topic, name, message_id, COMMIT, rig.now_ms)
    assert end("orders", sent.transaction_id, "", COMMIT, rig.now_ms) is HalfState.COMMITTED


@pytest.mark.parametrize("event", [HalfEvent.COMMIT, HalfEvent.ROLLBACK])
def test_a_half_message_is_found_and_its_life_told(event: HalfEvent) -> None:
    rig = TransactionRig()
    sent = rig.half()
    rig.crash()
    ((found,), _) = rig.engine.messages.by_id("m-1")
    assert rig.engine.lives.life(found).half
    rig.end(sent, event)
    life = rig.engine.lives.life(found)
    assert not life.half
    assert (life.queue_id, life.queue_offset) == ((0, 0) if event is HalfEvent.COMMIT else (-1, -1))


@pytest.mark.parametrize("first_check_ms", [0, 1, HOUR_MS])
def test_the_first_check_is_when_the_producer_wants_it(first_check_ms: int) -> None:
    rig = TransactionRig()
    rig.half(first_check_ms=first_check_ms)
    rig.advance((first_check_ms or 6_000) - 1)
    assert rig.wanted() == []
    rig.advance(1)
    assert len(rig.wanted()) == 1


def test_checks_go_on_after_a_restart_and_count_only_who_was_asked() -> None:
    rig = TransactionRig()
    sent = rig.half()
    rig.advance(6_000)
    log_end = rig.engine.store.log.end
    rig.advance(HOUR_MS)  # no producer is there: nothing is counted or written
    assert rig.engine.store.log.end == log_end
    assert rig.ask() == 1
    assert rig.wanted() == []
    rig.crash()
    rig.advance(29_999)
    assert rig.wanted() == []
    rig.advance(1)
    assert [(one.checks, one.due_ms) for one in rig.halves()] == [(1, rig.now_ms)]
    assert rig.ask() == 1
    assert rig.end(sent, COMMIT) is HalfState.COMMITTED
    rig.advance(HOUR_MS)
    assert rig.wanted() == []


def test_after_the_last_check_it_is_kept_to_be_ended_until_it_is_too_old() -> None:
    rig = TransactionRig()
    kept, late = rig.half("m-1"), rig.half("m-2")
    for _ in range(15):
        rig.advance(30_000)
        assert rig.ask() == 2
    rig.advance(30_000)
    assert rig.ask() == 0
    items = rig.halves()
    assert [(one.checks, one.checks_max) for one in items] == [(15, 15), (15, 15)]
    assert items[0].due_ms == items[0].stored_ms + 72 * HOUR_MS
    assert rig.end(late, COMMIT, "m-2") is HalfState.COMMITTED
    rig.crash()
    rig.advance(72 * HOUR_MS)
    assert rig.halves() == []
    with pytest.raises(InvalidTransactionIdError, match="rolled back already"):
        rig.end(kept, COMMIT)
    check_uses(rig.engine)


def test_a_half_that_no_producer_could_be_asked_for_ends_too() -> None:
    rig = TransactionRig()
    rig.half()
    rig.advance(72 * HOUR_MS - 1)
    assert len(rig.wanted()) == 1
    rig.advance(1)
    assert (rig.wanted(), rig.halves()) == ([], [])


def test_with_too_many_open_the_oldest_checked_in_vain_goes() -> None:
    rig = TransactionRig(transaction=TransactionConfig(half_messages_max=2, checks_max=1))
    rig.half("m-1", first_check_ms=1)
    rig.half("m-2")
    before = rig.engine.store.log.end
    with pytest.raises(TooManyRequestsError, match="2 transactions are open"):
        rig.half("m-3")
    assert rig.engine.store.log.end == before
    rig.advance(1)
    assert rig.ask() == 1
    rig.half("m-3")
    assert [one.sys for one in rig.halves()] == [b"m-2", b"m-3"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_deleted_topic_takes_its_halves_with_it(restart: bool) -> None:
    rig = TransactionRig()
    sent = rig.half()
    rig.half(topic="mails")
    rig.advance(10_000)
    assert len(rig.wanted()) == 2
    rig.engine.topics.delete("orders", rig.now_ms)
    with pytest.raises(InvalidTransactionIdError):
        rig.end(sent, COMMIT)
    if restart:
        rig.checkpoint()
        rig.crash()
    rig.advance(1)
    assert [one.topic for one in rig.halves()] == ["mails"]
    assert len(rig.engine._state.halves) == 1
    check_uses(rig.engine)


def test_an_operator_decides() -> None:
    rig = TransactionRig()
    rig.half("m-1")
    cancelled = rig.half("m-2")
    delayed = rig.send("m-3", wait_ms=HOUR_MS)[0].pending_id
    pending = rig.engine.pending
    assert [count.count for count in pending.count(PendingFilter(topic="orders"))] == [1, 2]
    assert pending.commit("m-1", rig.now_ms).kind is PendingKind.HALF
    assert pending.cancel(cancelled.transaction_id, rig.now_ms).sys == b"m-2"
    assert rig.names() == ["m-1"]
    with pytest.raises(MessageNotFoundError):
        pending.commit(cancelled.transaction_id, rig.now_ms)
    with pytest.raises(PreconditionFailedError, match="no half message"):
        pending.commit(delayed, rig.now_ms)
    half = rig.half("m-4").transaction_id
    with pytest.raises(PreconditionFailedError, match="commit or cancel it"):
        pending.expedite(half, rig.now_ms)
    with pytest.raises(PreconditionFailedError, match="commit or cancel it"):
        pending.postpone(half, rig.now_ms + 1, rig.now_ms)


def test_pages_of_halves_have_no_gap() -> None:
    rig = TransactionRig()
    for n in range(7):
        rig.half(f"m-{n}", first_check_ms=1_000 * (7 - n % 3))
    seen: list[str] = []
    token = ""
    while True:
        items, token = rig.engine.pending.page(PendingFilter(), 2, token)
        seen += [one.sys.decode() for one in items]
        if not token:
            break
    assert sorted(seen) == [f"m-{n}" for n in range(7)]
    assert waits_of(rig.engine, "m-3") == [
        one.pending_id for one in rig.halves() if one.sys == b"m-3"
    ]


def test_all_or_none_and_only_to_a_topic_that_is() -> None:
    rig = TransactionRig()
    message = Outgoing("orders", b"body", b"m", "m")
    sent = rig.engine.transactions.send([message] * 3, rig.now_ms)
    assert len({one.transaction_id for one in sent}) == 3
    with pytest.raises(TopicNotFoundError):
        rig.engine.transactions.send([message._replace(topic="%DLQ%nobody")], rig.now_ms)

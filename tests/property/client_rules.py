"""What producers and consumers do: send, delay, receive, ack, extend, nack, suspend, forward, and
the ends of transactions. Each rule asks the engine and tells the model."""

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from latermq_broker.delivery.halves import HalfEvent, HalfState, transaction_id
from latermq_broker.delivery.history import Outcome
from latermq_broker.engine.state.model import (
    DeadFilter,
    Delivered,
    Failure,
    Outgoing,
    ReceiveRequest,
    TagFilter,
)
from latermq_broker.errors import (
    InvalidTransactionIdError,
    StoreFullError,
    TooManyRequestsError,
)
from support.engine_bench import HELD_MAX, KEYS, TOPIC, Bench, Over, body, pusher
from support.engine_facts import newest_letter
from support.engine_model import HALVES_MAX
from support.group_model import IN_HAND, Group, Held, Message, Where

LEASE_MS = 1_000
RETRY_LOG_BYTES_MAX = 192
BAD = Failure("ValueError", "bad", "", "")
ENDS = {
    HalfEvent.COMMIT: HalfState.COMMITTED,
    HalfEvent.ROLLBACK: HalfState.ROLLED_BACK,
}
SORTS = st.lists(
    st.tuples(st.sampled_from("aab"), st.sampled_from([*KEYS, "a", "a"])),
    min_size=1,
    max_size=4,
)


NAMES = st.sampled_from(["everything", "only-a", "skip", "park"])
WORK = [
    *(
        "send",
        "send",
        "receive",
        "receive",
        "receive",
        "ack",
        "nack",
        "nack",
        "extend",
        "suspend",
    ),
    *("wait", "wait", "fill", "second", "second"),
]


class ClientRules(Bench):
    tries = 0

    @rule(draw=st.data(), kinds=st.lists(st.sampled_from(WORK), min_size=3, max_size=9))
    def a_while_of_work(self, draw: st.DataObject, kinds: list[str]) -> None:
        """The other rules, many in one step: rules are chosen without regard to what is common."""
        for kind in kinds:
            if kind == "send":
                self.send(draw.draw(SORTS), draw.draw(st.sampled_from([0, 0, 500])))
                self.look()
            elif kind == "receive":
                self.receive(draw.draw(NAMES), 6, "")
            elif kind == "wait":
                self.wait_until_due(draw, draw.draw(st.sampled_from([0, 0, 1])))
            elif kind == "second":
                self.now_ms += 1_000
                self.tick()
            elif kind == "fill":
                self.fill(14)
                self.engine.checkpoints.take(self.now_ms)
            elif self.in_hand() and kind == "ack":
                self.ack(draw)
            elif self.in_hand():
                self.change_invisible(draw, 700, kind)

    @rule(
        sorts=SORTS,
        wait_ms=st.one_of(st.just(0), st.integers(-5, 3_000), st.integers(0, 400_000)),
    )
    def send(self, sorts: list[tuple[str, str]], wait_ms: int) -> None:
        due_ms = self.wall_ms + wait_ms if wait_ms > 0 else 0
        outgoing = self.outgoing(sorts, due_ms=due_ms)
        if self.refused(outgoing, transaction=False):
            return
        where = Where.WAITS if due_ms else Where.ENTERS
        for one, sent in zip(outgoing, self.engine.send(outgoing, self.now_ms), strict=True):
            message = self.known(one, where)
            message.due_ms = due_ms
            message.pending_id = message.shown_id = sent.pending_id
            assert bool(sent.pending_id) == bool(due_ms)

    def outgoing(
        self, sorts: list[tuple[str, str]], *, due_ms: int = 0, first_check_ms: int = 0
    ) -> list[Outgoing]:
        names = [f"m{len(self.model.messages) + index}" for index in range(len(sorts))]
        return [
            Outgoing(
                topic=TOPIC,
                rest=body(name),
                sys=name.encode(),
                message_id=name,
                tag=tag,
                deliver_at_ms=due_ms,
                first_check_ms=first_check_ms,
                message_group=key,
            )
            for name, (tag, key) in zip(names, sorts, strict=True)
        ]

    def refused(self, outgoing: list[Outgoing], *, transaction: bool) -> bool:
        """I2: on a full disk, and nothing of it is there."""
        if not self.engine.store.disk.full:
            return False
        before = self.engine.store.log.end
        send = self.engine.transactions.send if transaction else self.engine.send
        with pytest.raises(StoreFullError, match="disk full: need"):
            send(outgoing, self.now_ms)
        assert self.engine.store.log.end == before, "I2"
        return True

    def known(self, one: Outgoing, where: Where) -> Message:
        return self.model.send(one.message_id, one.tag, one.message_group, 0, where)

    # --- receiving -----------------------------------------------------------------------------

    @rule(
        name=NAMES,
        count=st.integers(1, 6),
        how=st.sampled_from(["", "", "", "push", "renewed", "lost", "gone", "unproved"]),
    )
    def receive(self, name: str, count: int, how: str) -> None:
        """`lost`: the reply was, and is asked for again; `gone`: the client was, and it came back;
        `unproved`: nobody knows whether the reply of a push consumer that lives arrived.

        A push consumer's leases are renewed; but of `push` the client is gone at once.
        """
        group = self.model.groups[name]
        if (
            how in ("renewed", "unproved")
            and not group.renews
            and any(h.look_ms for h in group.in_state("leased"))
        ):
            how = ""  # its client does not come back while leases of it end
        self.tries += 1
        request = ReceiveRequest(
            group=name,
            topic=TOPIC,
            client_id=pusher(group) if how in ("renewed", "unproved") else "client",
            count_max=count,
            invisible_ms=LEASE_MS,
            auto_renew=how in ("push", "renewed", "unproved"),
            filter=TagFilter(group.tags),
            attempt_id=f"try-{self.tries}" if how == "lost" else "",
        )
        must = min(count, len(group.receivable())) if group.on_dead is None else 0
        something = group.on_dead is not None and group.runnable(self.now_ms)
        group.renews = group.renews or how in ("renewed", "unproved")
        before = self.cursors(group)
        delivered = self.engine.receive(request, self.now_ms)
        for _ in range(5 * (group.on_dead is not None)):
            delivered = delivered or self.engine.receive(request, self.now_ms)
        self.note_spent(group)
        if group.on_dead is None:
            assert len(delivered) == must
        else:
            assert delivered or not something or self.held_count(name) >= HELD_MAX
        assert len(delivered) <= count
        if how == "push":
            self.engine.client_gone("client", self.now_ms)
        if how == "lost" and delivered:
            assert self.engine.receive(request, self.now_ms) == delivered
        self.take(group, delivered)
        group.looked(before, self.cursors(group))
        for one in delivered:
            held = group.held[one.sys.decode()]
            held.push = how in ("push", "renewed", "unproved")
            held.unproved = how == "unproved"
            held.gone = how == "push"
            if how in ("renewed", "unproved"):
                held.hold_until(held.deadline_ms)
        if how == "unproved":
            self.engine.unproved(name, [one.handle for one in delivered], self.now_ms)
        if how == "gone":
            self.engine.give_back(name, [one.handle for one in delivered], self.now_ms)
            for one in delivered:
                held = group.held[one.sys.decode()]
                group.suspend(held, 1_000, self.now_ms)
                held.handle = ""

    def note_spent(self, group: Group) -> None:
        """Those that a tightened policy left no attempt may have died when they were met, and those
        that a changed filter does not want; what was never given is acknowledged then."""
        spent = [held for held in group.held.values() if group.spent(held)]
        unwanted = [
            held
            for held in group.in_state("ready")
            if group.on_dead and held.message.key and group.unwanted(held, self.now_ms)
        ]
        if not spent and not unwanted:
            return
        letters = self.dead(group.name)
        letters.subtract(one.message.name for one in group.letters if one.state == "dead")
        for held in spent:
            if letters[held.message.name] > 0:
                group.die(held, self.now_ms)
        for held in unwanted:
            if held.state == "ready" and letters[held.message.name] > 0:
                group.die(held, self.now_ms, filtered=True)
            elif held.state == "ready" and not held.deadline_ms:
                held.state = "ready" if held.message.name in self.retries(group) else "done"

    def dead(self, group: str) -> Counter[str]:
        letters = self.engine.dead.scan(group, DeadFilter(), count_max=1_000).letters
        return Counter(letter.sys.decode() for letter in letters)

    def take(self, group: Group, delivered: list[Delivered]) -> None:
        """I3, I4, I5 and the order: each is the next of what may come."""
        lines = {key: group.line(key) for key in KEYS}
        taken: dict[str, list[Held]] = {key: [] for key in KEYS}
        for one in delivered:
            held = group.held[one.sys.decode()]
            key, line = held.message.key, lines[held.message.key]
            assert held in line, "I3, I5: nobody may have it now"
            assert group.wants(held)
            if key and group.on_dead is not None:
                while line[0] is not held:
                    passed = line.pop(0)
                    assert passed.maybe or not group.wants(passed), "out of order"
                    assert passed.state == "fresh", "out of order"
                    passed.state = "done"
            line.remove(held)
            assert one.rest == body(held.message.name)
            assert (one.queue_id, one.queue_offset) == held.message.place
            group.lease(held, one.attempt, one.handle, self.now_ms, LEASE_MS)
            taken[key].append(held)
        for key, batch in taken.items():
            if key and group.on_dead and any(group.alone(held.attempt) for held in batch):
                assert len(batch) == 1

    def held_count(self, group: str) -> int:
        gates = (
            one.gate
            for (group_id, _), one in self.engine._state.subscriptions.items()
            if group_id == self.engine.catalog.require_group(group).id
        )
        held = sum(gate.held_count for gate in gates if gate is not None)
        return held + len(self.model.groups[group].in_state("ready"))

    # --- and then ------------------------------------------------------------------------------

    def in_hand(self, name: str = "") -> list[tuple[Group, Held]]:
        return [
            (group, held)
            for group, held in self.model.held(*IN_HAND)
            if held.handle and name in ("", group.name)
        ]

    @precondition(lambda self: self.in_hand())
    @rule(draw=st.data())
    def ack(self, draw: st.DataObject, name: str = "") -> None:
        group, held = draw.draw(st.sampled_from(self.in_hand(name)))
        other = next(name for name in self.model.groups if name != group.name)
        assert self.engine.ack(other, [held.handle], self.now_ms) != [None]
        for handles in ([held.handle, held.handle], [held.handle]):
            assert self.engine.ack(group.name, handles, self.now_ms) == [None] * len(handles)
        self.over.append(Over(group.name, held.handle, held.deadline_ms, forwarded=False))
        held.state = "done"

    @precondition(lambda self: self.in_hand())
    @rule(
        draw=st.data(),
        wait_ms=st.integers(1, 2_500),
        kind=st.sampled_from(["extend", "nack", "nack", "suspend"]),
    )
    def change_invisible(
        self, draw: st.DataObject, wait_ms: int, kind: str, name: str = ""
    ) -> None:
        group, held = draw.draw(st.sampled_from(self.in_hand(name)))
        old, before = held.handle, self.engine.store.log.end
        held.handle = self.engine.change_invisible(
            group.name,
            old,
            wait_ms,
            self.now_ms,
            suspend=kind == "suspend",
            failure=BAD if kind == "nack" else None,
        )
        if held.state == "leased" and (kind == "nack" or (kind == "extend" and held.push)):
            group.fail(held, wait_ms, self.now_ms)
        else:
            held.deadline_ms = self.now_ms + wait_ms
            if held.state == "leased" and kind == "suspend":
                group.suspend(held, wait_ms, self.now_ms)
        if held.state != "dead":
            if self.engine.store.log.segments[-1].base < before:
                assert self.engine.store.log.end - before <= RETRY_LOG_BYTES_MAX
            assert self.engine.ack(group.name, [old], self.now_ms) != [None]

    @precondition(lambda self: self.in_hand())
    @rule(draw=st.data(), rejected=st.booleans())
    def forward(self, draw: st.DataObject, rejected: bool, name: str = "") -> None:
        group, held = draw.draw(st.sampled_from(self.in_hand(name)))
        for _ in range(2):  # clients repeat it
            failure = Failure("Bad", "no", "", "", rejected)
            self.engine.forward(group.name, held.handle, self.now_ms, failure)
        self.over.append(Over(group.name, held.handle, held.deadline_ms, forwarded=True))
        group.forward(held, Outcome.REJECTED if rejected else Outcome.FORWARDED, self.now_ms)
        letter = newest_letter(self.engine, group.name, held.message.name)
        assert letter.reason == ("rejected" if rejected else "forwarded")
        assert letter.attempt_count == held.attempt

    # --- transactions --------------------------------------------------------------------------

    @rule(sorts=SORTS, first_check_ms=st.sampled_from([0, 1, 5_000, 3_600_000]))
    def begin_transactions(self, sorts: list[tuple[str, str]], first_check_ms: int) -> None:
        outgoing = self.outgoing(sorts, first_check_ms=first_check_ms)
        if self.refused(outgoing, transaction=True):
            return
        in_vain = list(self.model.given_up_for(len(outgoing)))
        over = len(self.model.pending_halves()) + len(outgoing) - HALVES_MAX
        if over > len(in_vain):
            before = self.engine.store.log.end
            with pytest.raises(TooManyRequestsError, match="12 transactions are open"):
                self.engine.transactions.send(outgoing, self.now_ms)
            assert self.engine.store.log.end == before, "I2"
            return
        sent = self.engine.transactions.send(outgoing, self.now_ms)
        pending = {transaction_id(each.first, each.id_hash) for each in self.engine._state.halves}
        gone = [name for name in in_vain if name not in pending]
        assert len(gone) == max(over, 0)
        for name in gone:
            self.model.end(self.model.halves[name], HalfState.ROLLED_BACK)
        for one, half in zip(outgoing, sent, strict=True):
            message = self.known(one, Where.HALF)
            self.model.begin(half.transaction_id, message, first_check_ms, self.now_ms)

    @precondition(lambda self: self.model.halves)
    @rule(draw=st.data(), event=st.sampled_from(sorted(ENDS)), told=st.booleans())
    def end_transaction(self, draw: st.DataObject, event: HalfEvent, told: bool) -> None:
        name = draw.draw(st.sampled_from(sorted(self.model.halves)))
        half = self.model.halves[name]
        message_id = half.message.name if told else ""
        end = self.engine.transactions.end
        with pytest.raises(InvalidTransactionIdError):
            end(TOPIC, name, "another", event, self.now_ms)
        if half.state not in (HalfState.PENDING, ENDS[event]):
            with pytest.raises(InvalidTransactionIdError, match="already"):
                end(TOPIC, name, message_id, event, self.now_ms)
            return
        if half.state is HalfState.PENDING:
            self.model.end(half, ENDS[event])
        for _ in range(2):  # clients repeat it
            assert end(TOPIC, name, message_id, event, self.now_ms) is ENDS[event]

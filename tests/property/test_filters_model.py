"""Groups whose consumers filter differently, and change, come and go, against dicts.

Each receive tells the core what all live members of its group want, as services do. Held after
every step: nobody is given what its filter does not want; nothing that was wanted by a live member
at every receive that arrived is lost; a receive that waits loses nothing at all; message groups
keep their order; after a restart every figure is what it was.
"""

from dataclasses import dataclass, field
from itertools import count
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latermq_broker.config.config import CatalogConfig, DeliveryConfig
from latermq_broker.engine.state.lag import lag_of
from latermq_broker.engine.state.model import (
    EVERYTHING,
    MessageFilter,
    Outgoing,
    ReceiveRequest,
    TagFilter,
    TopicType,
    sql_filter,
)
from latermq_broker.store.records.message_fields import message_id
from support.engine_facts import facts
from support.engine_rig import EngineRig
from support.small_bounds import MODEL_STORE

TOPIC: Final = "orders"
TAGS: Final = "abc"
FILTERS: Final[dict[str, MessageFilter]] = {
    "*": EVERYTHING,
    "a": TagFilter(frozenset("a")),
    "b": TagFilter(frozenset("b")),
    "a||b": TagFilter(frozenset("ab")),
    "sql b": sql_filter("TAGS = 'b'"),
    "sql not a": sql_filter("TAGS <> 'a'"),
}
WANTED: Final = {"*": "abc", "a": "a", "b": "b", "a||b": "ab", "sql b": "b", "sql not a": "bc"}
GROUPS: Final = ("plain", "fifo")
LEASE_MS: Final = 1_000
ALL: Final = 200  # more than there are
GROUP: Final = st.sampled_from(GROUPS)
MEMBER: Final = st.sampled_from(["m1", "m2", "m3"])


@dataclass
class Held:
    """A message in a group.

    `maybe`: nobody wanted it once, so that it may have been passed over; `late`: nobody did when
    something behind it was given, which it need not precede any more.
    """

    number: int
    tag: str
    key: str
    state: str = "fresh"  # fresh | leased | ready | done
    handle: str = ""
    maybe: bool = False
    late: bool = False


@dataclass
class Group:
    name: str
    members: dict[str, str] = field(default_factory=dict)  # the live ones' filters
    held: dict[str, Held] = field(default_factory=dict)

    def wanted(self, held: Held) -> bool:
        return any(held.tag in WANTED[each] for each in self.members.values())

    def in_state(self, *states: str) -> list[Held]:
        return [held for held in self.held.values() if held.state in states]

    def by_number(self, number: int) -> Held:
        return next(held for held in self.held.values() if held.number == number)

    def line(self, key: str) -> list[Held]:
        """What of a message group comes, or may come, the next first."""
        mine = [held for held in self.in_state("fresh", "ready") if held.key == key]
        return sorted(mine, key=lambda held: held.number)


class FiltersMachine(RuleBasedStateMachine):
    QUEUES = 1

    def __init__(self) -> None:
        super().__init__()
        self.rig = EngineRig(
            store=MODEL_STORE,
            delivery=DeliveryConfig(unwanted_retry_ms_max=1 << 40),
            catalog=CatalogConfig(default_queue_count=self.QUEUES),
        )
        engine, now_ms = self.rig.engine, self.rig.now_ms
        engine.topics.create(TOPIC, TopicType.MIXED, self.QUEUES, now_ms)
        for name in GROUPS:
            fifo = name == "fifo"
            engine.groups.create(name, fifo=fifo, max_attempts=100, backoff=None, now_ms=now_ms)
        self.groups = {name: Group(name) for name in GROUPS}
        self.numbers = count()

    def teardown(self) -> None:
        self.rig.engine.abandon()

    @rule(sorts=st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from("xy ")), max_size=6))
    def send(self, sorts: list[tuple[str, str]]) -> None:
        messages = []
        for tag, key in sorts:
            number = next(self.numbers)
            name = f"{tag}{number}"
            key = key.strip()
            for group in self.groups.values():
                group.held[name] = Held(number, tag, key if group.name == "fifo" else "")
            messages.append(
                Outgoing(TOPIC, b"body", sys_of(name, tag), name, tag=tag, message_group=key)
            )
        if messages:
            self.rig.engine.send(messages, self.rig.now_ms)
            self.rig.engine.write()

    # --- members -------------------------------------------------------------------------------

    @rule(name=GROUP, member=MEMBER, filter=st.sampled_from(sorted(FILTERS)))
    def join_or_change(self, name: str, member: str, filter: str) -> None:
        self.groups[name].members[member] = filter

    @rule(name=GROUP, member=MEMBER)
    def leave(self, name: str, member: str) -> None:
        self.groups[name].members.pop(member, None)

    @rule(
        name=GROUP,
        member=MEMBER,
        count=st.sampled_from([1, 2, ALL, ALL]),
        waits=st.booleans(),
        old=st.sampled_from(["", "", "a", "b"]),
    )
    def receive(self, name: str, member: str, count: int, waits: bool, old: str) -> None:
        """`old`: one that has waited, with a filter that its client has no more."""
        group = self.groups[name]
        if member not in group.members:
            return
        filter = old if old and waits else group.members[member]
        delivered = self.rig.engine.receive(
            ReceiveRequest(
                group=name,
                topic=TOPIC,
                client_id=member,
                count_max=count,
                invisible_ms=LEASE_MS,
                filter=FILTERS[filter],
                wanted=tuple(FILTERS[each] for each in group.members.values()),
                waits=waits,
            ),
            self.rig.now_ms,
        )
        self.rig.engine.write()
        numbers: dict[str, list[int]] = {}
        for one in delivered:
            held = group.held[name_of(one.sys)]
            assert held.state in ("fresh", "ready"), "given twice"
            assert held.tag in WANTED[filter], "its filter does not want it"
            assert held.handle == "" or held.state == "ready"
            self.in_order(group, held, {name_of(each.sys) for each in delivered})
            numbers.setdefault(held.key, []).append(held.number)
        for key, given in numbers.items():
            given = [each for each in given if not group.by_number(each).late]
            assert not key or given == sorted(given), "out of order in a reply"
        for one in delivered:
            held = group.held[name_of(one.sys)]
            held.state, held.handle, held.maybe = "leased", one.handle, False
            for other in group.in_state("fresh"):
                if other.key == held.key and other.number < held.number:
                    other.late = True
        if len(delivered) < min(count, 32):
            self.nothing_was_left(group, filter, waits)
        if not waits:
            for held in group.in_state("fresh"):
                held.maybe = held.maybe or not group.wanted(held)

    def in_order(self, group: Group, held: Held, reply: set[str]) -> None:
        if not held.key:
            return
        for name, other in group.held.items():
            if other.late or name in reply:
                continue
            if other.key == held.key and other.number < held.number:
                assert other.state != "leased", "something before it is under way"
                if other.state == "ready" or (other.state == "fresh" and not other.maybe):
                    assert not group.wanted(other), "something before it is wanted"

    def nothing_was_left(self, group: Group, filter: str, waits: bool) -> None:
        """There was room for more."""
        for held in group.in_state("fresh", "ready"):
            if held.maybe or held.tag not in WANTED[filter]:
                continue
            if not held.key:
                raise AssertionError("it was there, and wanted, and there was room")
            if waits or any(other.key == held.key for other in group.in_state("leased")):
                continue
            before = [each for each in group.line(held.key) if each.number < held.number]
            assert any(
                group.wanted(each) or each.state == "ready" or each.tag in WANTED[filter]
                for each in before
            ), "it was next in its message group"

    # --- ends ----------------------------------------------------------------------------------

    @precondition(lambda self: any(one.in_state("leased") for one in self.groups.values()))
    @rule(name=GROUP, draw=st.data(), all=st.booleans())
    def ack(self, name: str, draw: st.DataObject, all: bool) -> None:
        group = self.groups[name]
        leased = group.in_state("leased")
        if not leased:
            return
        chosen = leased if all else [draw.draw(st.sampled_from(leased))]
        handles = [held.handle for held in chosen]
        assert self.rig.engine.ack(name, handles, self.rig.now_ms) == [None] * len(handles)
        self.rig.engine.write()
        for held in chosen:
            held.state = "done"

    @rule()
    def leases_end(self) -> None:
        self.rig.advance(LEASE_MS + 1)
        for group in self.groups.values():
            for held in group.in_state("leased"):
                held.state = "ready"

    @rule(how=st.sampled_from(["crash", "checkpoint", "stop"]))
    def restart(self, how: str) -> None:
        self.rig.engine.write()
        before = facts(self.rig.engine)
        if how == "checkpoint":
            self.rig.checkpoint()
        if how == "stop":
            self.rig.restart()
        else:
            self.rig.crash()
        assert facts(self.rig.engine) == before

    @invariant()
    def figures_are_right(self) -> None:
        """What counts as ready or held may still come, but for what may have been passed over."""
        state = self.rig.engine._state
        topic = state.catalog.require_topic(TOPIC)
        for (group_id, _), subscription in state.subscriptions.items():
            known = state.catalog.group_by_id(group_id)
            assert known is not None
            group = self.groups[known.name]
            lag = lag_of(state, subscription, topic)
            sure = [held for held in group.in_state("fresh", "ready") if not held.maybe]
            most = len(group.in_state("fresh", "ready"))
            count = lag.ready_count + lag.held_count
            assert len(sure) <= count <= most, f"{known.name}: {len(sure)} to {most}, and {lag}"


class QueuesMachine(FiltersMachine):
    QUEUES = 3


def sys_of(name: str, tag: str) -> bytes:
    """Encode tag and message id as protobuf does."""
    fields = [(1, tag.encode()), (3, name.encode())]
    return b"".join(bytes([field << 3 | 2, len(text)]) + text for field, text in fields)


def name_of(sys: bytes) -> str:
    return message_id(sys)


TestFilters = FiltersMachine.TestCase
TestFilters.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestFiltersOfQueues = QueuesMachine.TestCase
TestFiltersOfQueues.settings = settings(max_examples=30, stateful_step_count=50, deadline=None)

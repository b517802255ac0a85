"""A letter whose group was set back behind it: its message comes once at a time."""

from collections.abc import Callable

import pytest

from latermq_broker.engine.catalog.lites import Begin, Beginning, lite_key
from latermq_broker.engine.state.model import (
    DeadState,
    Delivered,
    Outgoing,
    ReceiveRequest,
    TopicType,
)
from latermq_broker.engine.views.message_life import GroupLife, LifeState
from latermq_broker.errors import PreconditionFailedError
from support.engine_facts import facts
from support.engine_rig import EngineRig

NAMES = ["m0", "m1", "m2"]
ROOM = "room"


class RewoundRig(EngineRig):
    """Of three messages `billing` has forwarded the second, and acknowledged the others."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.lite = kind == "lite"
        type = {"lite": TopicType.LITE, "fifo": TopicType.FIFO}.get(kind, TopicType.NORMAL)
        self.engine.topics.create("orders", type, 1, self.now_ms)
        if self.lite:
            self.engine.lites.bind("billing", "orders", self.now_ms)
        else:
            self.engine.groups.create(
                "billing", fifo=kind == "fifo", max_attempts=0, backoff=None, now_ms=self.now_ms
            )
        key = ROOM if kind == "fifo" else ""
        lite = ROOM if self.lite else ""
        messages = [
            Outgoing("orders", b"x", name.encode(), name, message_group=key, lite_topic=lite)
            for name in NAMES
        ]
        self.engine.send(messages, self.now_ms)
        for name in NAMES:
            [one] = self.hear(1)
            if name == "m1":
                self.engine.forward("billing", one.handle, self.now_ms)
            else:
                self.engine.ack("billing", [one.handle], self.now_ms)
        self.engine.write()

    def hear(self, count: int = 32) -> list[Delivered]:
        request = ReceiveRequest(
            group="billing", topic="orders", client_id="c", count_max=count, invisible_ms=1_000,
            lite_keys=frozenset({lite_key(ROOM)} if self.lite else ()),
        )  # fmt: skip
        delivered = self.engine.receive(request, self.now_ms)
        self.engine.write()
        return delivered

    def redrive(self, letter: int = 0) -> None:
        self.engine.dead.redrive("billing", letter, "", self.now_ms)
        self.engine.write()

    def refused(self, why: str) -> None:
        """A redrive does nothing, in this life and the next."""
        for again in (self.checkpoint, self.crash, lambda: None):
            before = facts(self.engine)
            with pytest.raises(PreconditionFailedError, match=why):
                self.redrive()
            assert facts(self.engine) == before
            letter = self.engine.dead.get("billing", 0)
            assert letter.state is DeadState.DEAD
            again()


def set_back(rig: RewoundRig) -> None:
    rig.engine.queues.commit("billing", "orders", 0, 0, rig.now_ms)
    rig.engine.write()


def reset(rig: RewoundRig) -> None:
    rig.engine.groups.reset("billing", "orders", 0, rig.now_ms)
    rig.engine.write()


def made_anew(rig: RewoundRig) -> None:
    """A new group begins with what is retained."""
    group = rig.engine.catalog.require_group("billing")
    rig.engine.groups.delete("billing", rig.now_ms)
    if rig.lite:
        rig.engine.lites.bind("billing", "orders", rig.now_ms)
    else:
        rig.engine.groups.create(
            "billing", fifo=group.fifo, max_attempts=0, backoff=None, now_ms=rig.now_ms
        )
    rig.engine.write()


@pytest.mark.parametrize("back", [set_back, reset, made_anew])
@pytest.mark.parametrize("kind", ["plain", "fifo", "lite"])
def test_it_has_its_message_once_at_a_time(kind: str, back: Callable[[RewoundRig], None]) -> None:
    rig = RewoundRig(kind)
    back(rig)
    rig.refused("is given this message anyway")
    (first,) = rig.hear(1)
    rig.refused("is given this message anyway")
    rig.engine.ack("billing", [first.handle], rig.now_ms)
    (second,) = rig.hear(1)
    rig.refused("has this message in hand")
    rig.engine.ack("billing", [second.handle], rig.now_ms)
    rig.redrive()  # it is asked for once more
    names: list[bytes] = []
    while got := rig.hear():
        names += [one.sys for one in got]
        rig.engine.ack("billing", [one.handle for one in got], rig.now_ms)
    assert sorted(names) == [b"m1", b"m2"]


def test_its_own_letter_is_not_in_the_way() -> None:
    rig = RewoundRig("plain")
    rig.redrive()
    (one,) = rig.hear()
    assert one.sys == b"m1"


def test_two_letters_of_one_message_go_one_after_the_other() -> None:
    rig = RewoundRig("plain")
    set_back(rig)
    for one in rig.hear():
        rig.engine.forward("billing", one.handle, rig.now_ms)
    rig.redrive(0)
    with pytest.raises(PreconditionFailedError, match="has this message in hand"):
        rig.redrive(2)
    rig.redrive(1)  # another message
    for one in rig.hear():
        rig.engine.ack("billing", [one.handle], rig.now_ms)
    rig.redrive(2)
    assert [one.sys for one in rig.hear()] == [b"m1"]


def test_a_redriven_one_is_void_when_its_offset_is_set_back() -> None:
    rig = RewoundRig("plain")
    rig.redrive()
    (held,) = rig.hear()
    set_back(rig)
    assert [one.sys.decode() for one in rig.hear()] == NAMES
    assert rig.engine.ack("billing", [held.handle], rig.now_ms) != [None]


def test_what_others_hold_is_not_in_the_way() -> None:
    """The same offset in another queue's, topic's and group's deliveries."""
    rig = RewoundRig("plain")
    rig.engine.topics.create("others", TopicType.NORMAL, 4, rig.now_ms)
    rig.engine.send([Outgoing("others", b"x", b"o", f"o{n}") for n in range(40)], rig.now_ms)
    for group, topic in (("billing", "others"), ("shipping", "orders"), ("shipping", "others")):
        request = ReceiveRequest(
            group=group, topic=topic, client_id="c", count_max=32, invisible_ms=1_000
        )
        assert rig.engine.receive(request, rig.now_ms)
    rig.redrive()
    assert [one.sys for one in rig.hear()] == [b"m1"]


def fate(rig: RewoundRig, name: str = "m1") -> GroupLife:
    (found,) = rig.engine.messages.by_id(name, "orders")[0]
    (life,) = rig.engine.lives.life(found).groups
    return life


def everywhere(rig: RewoundRig, state: LifeState, letter: DeadState | None) -> None:
    """Its story is the same in this life and in those that begin with a checkpoint or the log."""
    for before in (lambda: None, rig.crash, rig.checkpoint, rig.crash):
        before()
        told = fate(rig)
        assert (told.state, told.dead_state) == (state, letter)
        assert (told.dead_offset >= 0) == (letter is not None)


def reset_lite(rig: RewoundRig) -> None:
    if rig.lite:
        group = rig.engine.catalog.require_group("billing")
        rig.engine.lites.begin(group, [ROOM], Beginning(Begin.FIRST), rig.now_ms)
        rig.engine.write()
    else:
        set_back(rig)


@pytest.mark.parametrize("back", [set_back, reset, reset_lite])
@pytest.mark.parametrize("kind", ["plain", "fifo", "lite"])
def test_its_story_is_that_of_its_newest_life(
    kind: str, back: Callable[[RewoundRig], None]
) -> None:
    rig = RewoundRig(kind)
    everywhere(rig, LifeState.DEAD, DeadState.DEAD)
    back(rig)
    everywhere(rig, LifeState.READY, DeadState.DEAD)
    (first,) = rig.hear(1)
    rig.engine.ack("billing", [first.handle], rig.now_ms)
    (second,) = rig.hear(1)
    everywhere(rig, LifeState.LEASED, DeadState.DEAD)
    rig.engine.ack("billing", [second.handle], rig.now_ms)
    everywhere(rig, LifeState.DONE, DeadState.DEAD)
    rig.redrive()
    everywhere(rig, LifeState.RETRY, DeadState.REDRIVEN)
    redriven = next(one for one in rig.hear() if one.sys == b"m1")
    rig.engine.ack("billing", [redriven.handle], rig.now_ms)
    everywhere(rig, LifeState.DONE, None)


def test_what_died_again_after_the_move_is_dead() -> None:
    rig = RewoundRig("plain")
    for letter in (2, 5):  # of three that die at a time the second
        set_back(rig)
        for one in rig.hear():
            rig.engine.forward("billing", one.handle, rig.now_ms)
        rig.engine.write()
        told = fate(rig)
        assert (told.state, told.dead_offset) == (LifeState.DEAD, letter)
    rig.engine.groups.reset("billing", "orders", rig.now_ms + 1, rig.now_ms)  # ahead
    assert fate(rig).state is LifeState.DEAD

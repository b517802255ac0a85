"""Dead letters of a topic that was deleted and made anew under its name, redriven into the new one:
no offset of the new topic is theirs, whatever stands where they stood."""

import pytest

from latermq_broker.config.config import StoreConfig
from latermq_broker.engine.receive.queues import REWOUND_REDRIVES_MAX
from latermq_broker.engine.state.model import DeadFilter, DeadLetter, Delivered, TopicType
from latermq_broker.errors import PreconditionFailedError
from support.engine_facts import facts
from support.engine_rig import EngineRig
from support.memory_files import MemoryFiles, lose_checkpoints


def letters(rig: EngineRig) -> list[DeadLetter]:
    return list(rig.engine.dead.scan("billing", DeadFilter(), count_max=1_000).letters)


def redrive(rig: EngineRig, letter: DeadLetter, to_topic: str = "") -> None:
    rig.engine.dead.redrive("billing", letter.queue_offset, to_topic, rig.now_ms)
    rig.engine.write()


def all_die(rig: EngineRig, topic: str = "orders") -> None:
    for one in rig.receive(topic=topic):
        forward(rig, one)


def forward(rig: EngineRig, one: Delivered) -> None:
    rig.engine.forward("billing", one.handle, rig.now_ms)
    rig.engine.write()


def set_back(rig: EngineRig, to: int = 0, topic: str = "orders") -> None:
    rig.engine.queues.commit("billing", topic, 0, to, rig.now_ms)
    rig.engine.write()


def made_anew(rig: EngineRig) -> None:
    rig.engine.topics.delete("orders", rig.now_ms)
    rig.engine.topics.create("orders", TopicType.MIXED, 1, rig.now_ms)
    rig.engine.write()


def two_letters_of_one_message() -> EngineRig:
    rig = EngineRig()
    rig.send("m")
    all_die(rig)
    set_back(rig)
    all_die(rig)
    assert len(letters(rig)) == 2
    return rig


def same_after_starts(rig: EngineRig) -> None:
    before = facts(rig.engine)
    rig.crash()
    assert facts(rig.engine) == before
    assert isinstance(rig.files, MemoryFiles)
    rig.engine.write()
    rig.engine.abandon()
    lose_checkpoints(rig.files)
    rig.engine = rig.reopened()
    assert facts(rig.engine) == before


def test_two_letters_of_one_message_are_not_redriven_at_a_time() -> None:
    rig = two_letters_of_one_message()
    made_anew(rig)
    first, second = letters(rig)
    redrive(rig, first)
    with pytest.raises(PreconditionFailedError, match="in hand already"):
        redrive(rig, second)
    [one] = rig.receive()
    with pytest.raises(PreconditionFailedError, match="in hand already"):
        redrive(rig, second)
    assert rig.ack(one) == [True]
    redrive(rig, second)
    assert rig.names() == ["m"]


def test_nor_is_the_letter_of_a_life_in_the_new_topic() -> None:
    rig = two_letters_of_one_message()
    made_anew(rig)
    first, second = letters(rig)
    redrive(rig, first)
    all_die(rig)
    [_, again] = letters(rig)
    assert (again.origin_queue_id, again.origin_offset) == (0, 0)
    redrive(rig, second)
    with pytest.raises(PreconditionFailedError, match="in hand already"):
        redrive(rig, again)


def test_a_letter_is_not_taken_for_what_stands_at_its_offset_now() -> None:
    rig = EngineRig()
    rig.send("m")
    all_die(rig)
    made_anew(rig)
    redrive(rig, letters(rig)[0])
    all_die(rig)
    rig.send("n")  # at the offset that m had
    redrive(rig, letters(rig)[0])
    assert sorted(rig.names()) == ["m", "n"]


def test_what_was_redriven_to_a_topic_is_in_hand_there() -> None:
    rig = EngineRig()
    rig.engine.topics.create("other", TopicType.MIXED, 1, rig.now_ms)
    rig.send("m")
    all_die(rig)
    redrive(rig, letters(rig)[0], to_topic="other")
    all_die(rig, "other")
    [letter] = letters(rig)
    set_back(rig, topic="other")
    assert rig.names(topic="other") == ["m"]
    with pytest.raises(PreconditionFailedError, match="in hand already"):
        redrive(rig, letter)


@pytest.mark.parametrize("count", [REWOUND_REDRIVES_MAX, REWOUND_REDRIVES_MAX + 1])
def test_a_group_is_set_back_over_so_many_of_them(count: int) -> None:
    rig = EngineRig(store=StoreConfig(segment_bytes=320 << 10, message_body_bytes_max=8 << 10))
    rig.engine.topics.create("orders", TopicType.MIXED, 1, rig.now_ms)
    for index in range(count):
        rig.send(f"m{index}")
    while got := rig.receive():
        for one in got:
            forward(rig, one)
    made_anew(rig)
    for letter in letters(rig):
        redrive(rig, letter)
    rig.send("new")
    while rig.receive():
        pass
    if count > REWOUND_REDRIVES_MAX:
        before = facts(rig.engine)
        with pytest.raises(PreconditionFailedError, match="has more than 256 messages in hand"):
            set_back(rig)
        assert facts(rig.engine) == before
        return
    set_back(rig)
    given = 0
    while names := rig.names():
        given += len(names)
    assert given == count + 1
    same_after_starts(rig)


@pytest.mark.parametrize("fifo", [False, True])
@pytest.mark.parametrize("leased", [False, True])
def test_what_was_redriven_comes_though_the_offset_is_set_back(fifo: bool, leased: bool) -> None:
    rig = EngineRig()
    rig.engine.groups.create("billing", fifo=fifo, max_attempts=3, backoff=None, now_ms=rig.now_ms)
    rig.send("k", "l", "m")
    all_die(rig)
    made_anew(rig)
    rig.send("n", "o")
    [n, o] = rig.receive()
    for letter in letters(rig):
        redrive(rig, letter)
    assert rig.ack(n) == [True]
    in_hand = rig.receive() if leased else []
    set_back(rig)
    assert rig.ack(o, *in_hand) == [False] * (1 + len(in_hand))  # what is given again
    same_after_starts(rig)
    assert sorted(rig.names()) == ["k", "l", "m", "n", "o"]


def test_and_though_its_letter_has_expired() -> None:
    rig = two_letters_of_one_message()
    made_anew(rig)
    rig.send("n")
    redrive(rig, letters(rig)[0])
    assert sorted(rig.names()) == ["m", "n"]
    rig.engine.topics.delete("%DLQ%billing", rig.now_ms)
    rig.engine.write()
    set_back(rig)
    same_after_starts(rig)
    assert sorted(rig.names()) == ["m", "n"]
    assert letters(rig) == []

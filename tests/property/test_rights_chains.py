"""What a caller can read in the end: pairs of rights, and chains of calls of every kind.

The model says for each of the neighbour's texts which rights show it. Everything else is found by
asking: for each pair of rights all calls there are, in a random order by seed, twice, so that what
one call moves another one reads.
"""

from collections.abc import Iterator
from itertools import combinations
from random import Random
from typing import Final

import pytest

from latermq_broker.catalog.access import RIGHTS_OF, Kind, Right
from support.rights_world import (
    ABSENT,
    BODY,
    CLIENT,
    FAILURE,
    GROUP,
    MINE,
    MY_GROUP,
    PROPERTY,
    REMOVING,
    RPCS,
    SCHEDULE,
    SETTLING,
    TELEMETRY,
    TICK_BODY,
    TOPIC,
    Ask,
    Granted,
    M,
    RightsWorld,
    everything,
    handles,
    told_by,
)

SEED: Final = 20_280_505
PUB, SUB, BROWSE = Right.PUB, Right.SUB, Right.BROWSE
BODIES: Final = Right.BODY
SINGLE: Final[tuple[Granted, ...]] = tuple(
    (kind, pattern, right)
    for kind, name in ((Kind.TOPIC, TOPIC), (Kind.GROUP, GROUP))
    for pattern in (name, "*")
    for right in RIGHTS_OF[kind]
)
# All pairs on the neighbour's things, and some of those with rights on everything.
PAIRS: Final = [
    *combinations([each for each in SINGLE if each[1] != "*"], 2),
    *Random(SEED).sample([pair for pair in combinations(SINGLE, 2) if "*" in
                          (pair[0][1], pair[1][1])], 25),
]  # fmt: skip


def shown(topic: set[Right], group: set[Right]) -> set[bytes]:
    """Say which of the neighbour's texts rights on its topic and its group show."""
    reads_topic = bool(topic & {SUB, BODIES})
    reads_letters = group >= {BROWSE, BODIES}
    looks = BROWSE in topic or BROWSE in group
    rules: dict[bytes, bool] = {
        BODY: reads_topic or reads_letters,
        TICK_BODY: reads_topic,  # also as a message, when it was run
        PROPERTY: looks or reads_topic,
        FAILURE: looks,
        TOPIC.encode(): bool(topic) or BROWSE in group,
        GROUP.encode(): bool(group) or BROWSE in topic,
        SCHEDULE.encode(): bool(topic & {PUB, BROWSE}) or reads_topic,
        CLIENT.encode(): looks,
    }
    return {text for text, may in rules.items() if may}


def of(pair: tuple[Granted, ...], kind: Kind) -> set[Right]:
    return {right for on, _, right in pair if on is kind}


def settling(topic: str, group: str, handle: str) -> Iterator[Ask]:
    names = {"topic": {"name": topic}, "group": {"name": group}}
    lease = {"receipt_handle": handle, "message_id": "first"}
    yield f"{M}/ChangeInvisibleDuration", {**names, **lease, "invisible_duration": {"seconds": 10}}
    yield f"{M}/AckMessage", {**names, "entries": [lease]}
    yield (
        f"{M}/ForwardMessageToDeadLetterQueue",
        {**names, **lease, "delivery_attempt": 1, "max_delivery_attempts": 1},
    )


@pytest.mark.parametrize(
    "pair", PAIRS, ids=lambda pair: " ".join(f"{k.value}:{n}:{r.value}" for k, n, r in pair)
)
def test_no_chain_of_calls_reads_more_than_its_rights_say(pair: tuple[Granted, Granted]) -> None:
    random = Random(f"{SEED} {pair}")
    may = shown(of(pair, Kind.TOPIC), of(pair, Kind.GROUP))
    world = RightsWorld()
    try:
        for kind, pattern, right in pair:
            world.grant(kind, pattern, right)
        asks = everything()
        held: list[str] = []
        for _ in range(2):
            random.shuffle(asks)
            for path, fields in asks:
                answers = world.ask(path, fields)
                held += handles(answers)
                assert not told_by(path, fields, answers) - may, (path, fields, answers)
            for handle in held:
                topic, group = random.choice((MINE, TOPIC)), random.choice((MY_GROUP, GROUP))
                for path, fields in settling(topic, group, handle):
                    answers = world.ask(path, fields)
                    assert not told_by(path, fields, answers) - may, (path, fields, answers)
            world.advance(61_000)  # leases end, schedules tick
    finally:
        world.close()


def test_every_call_is_one_of_the_chain() -> None:
    asked = {path for path, _ in everything()} | SETTLING | REMOVING | {TELEMETRY}
    assert asked == set(RPCS)


def test_a_texts_way_out_is_found_where_there_is_one() -> None:
    """Each text is told to who has all rights: else a chain that tells nothing proves nothing."""
    world = RightsWorld()
    told: set[bytes] = set()
    try:
        for kind, name in ((Kind.TOPIC, TOPIC), (Kind.GROUP, GROUP)):
            world.grant(kind, name, *RIGHTS_OF[kind])
        for path, fields in everything():
            told |= told_by(path, fields, world.ask(path, fields))
        assert told == shown(set(Right), set(Right))
    finally:
        world.close()


def absent(ask: Ask) -> Ask:
    """Make a call about things that are not there."""

    def renamed(value: object) -> object:
        if isinstance(value, str):
            for name, other in ABSENT.items():
                value = value.replace(name, other)
        elif isinstance(value, dict):
            value = {key: renamed(each) for key, each in value.items()}
        elif isinstance(value, list):
            value = [renamed(each) for each in value]
        return value

    return ask[0], renamed(ask[1])  # type: ignore[return-value]


def test_nobody_learns_from_a_refusal_whether_a_thing_is_there() -> None:
    """But by the name of a schedule that is taken: a name is one schedule's in the whole broker."""
    world = RightsWorld()
    taken = "latermq.v1.Schedules/PutSchedule"
    try:
        for path, fields in everything():
            other_path, other_fields = absent((path, fields))
            if fields == other_fields or path == taken:
                continue
            told, other = (
                b"".join(each.SerializeToString(deterministic=True) for each in answers)
                for answers in (world.ask(path, fields), world.ask(other_path, other_fields))
            )
            for name, missing in ABSENT.items():
                other = other.replace(missing.encode(), name.encode())
                told = told.replace(missing.encode(), name.encode())
            assert told == other, (path, fields)
    finally:
        world.close()

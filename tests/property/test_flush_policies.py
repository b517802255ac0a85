"""The table of promises in docs/store-format.md: each flush policy, each way to die, each cell.

A broker's services run on a disk that can lose power. Whatever was answered is noted; then the
process or the power dies, a new broker opens what is left, and what was promised must be there.
Where nothing is promised, a run that loses something shows
that the table does not promise too little.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Final

import pytest

from latermq_broker.config.config import Config, Flush
from latermq_broker.services.wire.wire_stored import stored_message
from support.engine_rig import START_MS
from support.messaging import SMALL, Messaging
from support.torn_files import TornDisk, TornFiles
from support.virtual_loop import InlineThreads, run_virtually
from support.wire_requests import message

STEPS: Final = 40
SEEDS: Final = range(4)
LEASE_MS: Final = 60_000
LOST_WITH_ASYNC_MS: Final = 200  # storage promises: and what a running sync had not stored

Crash = Callable[[TornFiles, int], TornFiles]


@dataclass(slots=True)
class Answered:
    """What clients were told, by the body of the message, with the loop's time of the answer."""

    sent: dict[bytes, float] = field(default_factory=dict)
    leased: dict[bytes, int] = field(default_factory=dict)  # the attempt
    acked: dict[bytes, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Left:
    """What a new broker found."""

    sent: set[bytes]
    next_attempt: dict[bytes, int]  # of what it delivers, all leases run out


def process_dies(files: TornFiles, seed: int) -> TornFiles:
    del seed
    files.disk.kill()
    return files


def power_fails(files: TornFiles, seed: int) -> TornFiles:
    return files.power_loss(seed)


def with_policy(flush: Flush) -> Config:
    return replace(SMALL, store=replace(SMALL.store, flush=flush))


async def live(broker: Messaging, random: Random) -> Answered:
    """Sends, receives and acks, with pauses; whatever runs is answered before the next begins."""
    answered = Answered()
    loop = asyncio.get_running_loop()
    handles: dict[bytes, str] = {}
    for number in range(STEPS):
        if random.random() < 0.3:
            await asyncio.sleep(random.choice((0.01, 0.1, 0.25)))
        match random.randrange(4):
            case 0 | 1:
                body = b"%d" % number + bytes(random.randrange(3_000))
                await broker.send(message("orders", body))
                answered.sent[body] = loop.time()
            case 2:
                got = await broker.receive(invisible_ms=LEASE_MS, count_max=2)
                for one in got.messages:
                    handles[one.body] = one.system_properties.receipt_handle
                    answered.leased[one.body] = one.system_properties.delivery_attempt
            case 3 if handles:
                body = random.choice(sorted(handles))
                await broker.ack(handles.pop(body))
                answered.acked[body] = loop.time()
    return answered


async def look(files: TornFiles, config: Config) -> Left:
    broker = Messaging(config, files, InlineThreads())
    broker.time_ms = START_MS + 10
    queues = broker.engine.queues
    sent: set[bytes] = set()
    if broker.engine.catalog.topic("orders") is not None:
        end = queues.ends("orders", 0).next_offset
        rows = queues.read("orders", "", 0, 0, end, rows_max=1_000, bytes_max=1 << 30)
        sent = {stored_message(row.rest, row.sys).body for row in rows}
    attempts: dict[bytes, int] = {}
    async with broker:
        await broker.advance(LEASE_MS)
        while got := (await broker.receive()).messages:
            for one in got:
                assert one.body not in attempts, "delivered twice at once"
                attempts[one.body] = one.system_properties.delivery_attempt
    return Left(sent, attempts)


def crash_after(flush: Flush, crash: Crash, seed: int) -> tuple[Answered, Left, float]:
    """(what was answered, what is left, when the end came)."""

    async def main() -> tuple[Answered, Left, float]:
        config = with_policy(flush)
        files = TornFiles()
        broker = Messaging(config, files, InlineThreads())
        answered = await live(broker, Random(seed))
        ended = asyncio.get_running_loop().time()
        return answered, await look(crash(files, seed), config), ended

    return run_virtually(main)


def kept_sends(answered: Answered, left: Left, before: float) -> bool:
    return {body for body, at in answered.sent.items() if at < before} <= left.sent


def kept_acks(answered: Answered, left: Left, before: float) -> bool:
    acked = {body for body, at in answered.acked.items() if at < before}
    return not acked & left.next_attempt.keys()


def kept_leases(answered: Answered, left: Left) -> bool:
    """Attempt = leases so far + 1, for whatever is delivered again."""
    return all(
        left.next_attempt.get(body, attempt + 1) == attempt + 1
        for body, attempt in answered.leased.items()
    )


def losses(flush: Flush, crash: Crash, kept: Callable[[Answered, Left, float], bool]) -> int:
    """In how many of some runs something that was answered is lost."""
    runs = (crash_after(flush, crash, seed) for seed in range(100, 112))
    return sum(not kept(*run) for run in runs)


@pytest.mark.parametrize("flush", list(Flush))
@pytest.mark.parametrize("seed", SEEDS)
def test_the_death_of_the_process_loses_nothing_with_any_policy(flush: Flush, seed: int) -> None:
    answered, left, ended = crash_after(flush, process_dies, seed)
    assert kept_sends(answered, left, ended + 1)
    assert kept_acks(answered, left, ended + 1)
    assert kept_leases(answered, left)


@pytest.mark.parametrize("flush", [Flush.SYNC, Flush.SYNC_STRICT])
@pytest.mark.parametrize("seed", SEEDS)
def test_sync_keeps_sends_and_acks_when_power_fails(flush: Flush, seed: int) -> None:
    answered, left, ended = crash_after(flush, power_fails, seed)
    assert kept_sends(answered, left, ended + 1)
    assert kept_acks(answered, left, ended + 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_sync_strict_keeps_leases_when_power_fails(seed: int) -> None:
    answered, left, _ = crash_after(Flush.SYNC_STRICT, power_fails, seed)
    assert answered.leased
    assert kept_leases(answered, left)


@pytest.mark.parametrize("seed", SEEDS)
def test_async_keeps_what_is_older_than_its_interval_when_power_fails(seed: int) -> None:
    answered, left, ended = crash_after(Flush.ASYNC, power_fails, seed)
    horizon = ended - LOST_WITH_ASYNC_MS / 1_000
    assert kept_sends(answered, left, horizon)
    assert kept_acks(answered, left, horizon)


@pytest.mark.parametrize("flush", list(Flush))
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_left_is_a_prefix_with_every_policy(flush: Flush, seed: int) -> None:
    answered, left, _ = crash_after(flush, power_fails, seed)
    in_order = list(answered.sent)
    assert left.sent == set(in_order[: len(left.sent)])


def test_what_is_not_promised_is_lost_at_times() -> None:
    """Else the table would promise too little, or this disk too much."""
    for flush in (Flush.NONE, Flush.ASYNC):
        assert losses(flush, power_fails, lambda a, b, end: kept_sends(a, b, end + 1))
        assert losses(flush, power_fails, lambda a, b, end: kept_acks(a, b, end + 1))
    horizon_s = LOST_WITH_ASYNC_MS / 1_000
    assert losses(Flush.NONE, power_fails, lambda a, b, end: kept_sends(a, b, end - horizon_s))
    assert losses(Flush.SYNC, power_fails, lambda a, b, _: kept_leases(a, b))
    assert not losses(Flush.SYNC_STRICT, power_fails, lambda a, b, _: kept_leases(a, b))


def test_none_syncs_when_a_segment_is_full_and_at_a_stop() -> None:
    async def main() -> None:
        files = TornFiles()
        broker = Messaging(with_policy(Flush.NONE), files, InlineThreads())
        log = broker.engine.store.log
        begun = log.durable
        bodies = (b"%d" % number + bytes(60_000) for number in count())
        while log.end < log.segments[0].end - 130_000:
            await broker.send(message("orders", next(bodies)))
            await asyncio.sleep(1)
        assert log.durable == begun, "seconds pass and nothing is synced"
        while len(log.segments) == 1:
            await broker.send(message("orders", next(bodies)))
        await broker.settle()
        assert log.durable > log.segments[1].base
        await broker.send(message("orders", b"last"))
        await broker.pump.stop()
        assert log.durable < log.end
        broker.engine.close(START_MS)
        assert isinstance(files.disk, TornDisk)
        found = await look(files.power_loss(1), broker.config)
        assert b"last" in found.sent

    run_virtually(main)

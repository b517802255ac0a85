"""Wrong signatures are slowed down, right ones never, whatever else comes from their address."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from latermq_broker.deferred import Later
from latermq_broker.observability.complaints import PAUSE_MS
from latermq_broker.services.auth import brake
from latermq_broker.services.auth.brake import Brake
from latermq_broker.services.call.handler import CallAborted
from latermq_proto.latermq.v1 import broker_pb2
from support.access_rig import AccessRig
from support.fake_call import FakeCall
from support.virtual_loop import virtually

GET_BROKER = "/latermq.v1.Brokers/GetBroker"
STREAMS = (
    "/apache.rocketmq.v2.MessagingService/Telemetry",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
)
PEER, NOW_MS = "192.0.2.1:4711", 1_000_000


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    made = AccessRig()
    yield made
    made.close()


def answers(rig: AccessRig, *calls: FakeCall) -> list[Any]:
    """What the handler returns at once, or an unsettled Later, or why the connection ends."""

    def answer(call: FakeCall) -> Any:
        try:
            return rig.methods[GET_BROKER].handler(b"", call)
        except CallAborted as aborted:
            return aborted

    async def all_at_once() -> list[Any]:
        return [answer(call) for call in calls]

    return rig.loop.run_until_complete(all_at_once())


def code(answer: bytes) -> int:
    return int(broker_pb2.GetBrokerResponse.FromString(answer).status.code)


def test_a_second_s_worth_is_answered_at_once_and_the_rest_kept_back(rig: AccessRig) -> None:
    wrong = [rig.by(secret="not-this-secret")] * (brake.FAILURES_PER_S + 40)
    got = answers(rig, *wrong)
    at_once = [code(each) for each in got if isinstance(each, bytes)]
    held = [each for each in got if isinstance(each, Later)]
    assert (len(at_once), len(held)) == (brake.FAILURES_PER_S, 40)
    assert set(at_once) == {40100}
    assert {code(each.value or b"") for each in held} == {40100}
    assert not any(each.settled for each in held)


def test_a_call_whose_request_comes_after_its_head_is_kept_back_too(rig: AccessRig) -> None:
    async def all_at_once() -> list[Any]:
        wrong = rig.by(secret="not-this-secret")
        admit = rig.methods[GET_BROKER].admit
        assert admit is not None
        tries = [admit(wrong) for _ in range(brake.FAILURES_PER_S + brake.HELD_PER_ADDRESS_MAX)]
        with pytest.raises(CallAborted) as aborted:
            admit(wrong)
        assert aborted.value.ends_connection
        return tries

    got = rig.loop.run_until_complete(all_at_once())
    held = [each for each in got if isinstance(each, Later)]
    assert len(held) == brake.HELD_PER_ADDRESS_MAX
    assert {code((each.value or [b""])[0]) for each in held} == {40100}
    assert not any(each.settled for each in held)


def test_who_signs_rightly_is_answered_whoever_else_is_at_that_address(rig: AccessRig) -> None:
    answers(rig, *[FakeCall()] * 500)
    for _ in range(3):
        (answer,) = answers(rig, rig.by())
        assert code(answer) == 20000
        rig.now_ms += 1_000  # another date, another signature: it is looked at, not looked up
        answers(rig, *[rig.by(secret="not-this-secret")] * 500)


def test_a_right_that_is_missing_is_no_wrong_signature(rig: AccessRig) -> None:
    forbidden = f"{GET_BROKER.replace('Brokers/GetBroker', 'Users')}/ListUsers"

    async def all_at_once() -> list[Any]:
        call = rig.by()
        return [rig.methods[forbidden].handler(b"", call) for _ in range(100)]

    assert all(isinstance(each, bytes) for each in rig.loop.run_until_complete(all_at_once()))


def test_the_log_has_two_lines_of_it_a_minute(
    rig: AccessRig, caplog: pytest.LogCaptureFixture
) -> None:
    answers(rig, *[FakeCall()] * 200)
    assert [each.message for each in caplog.records] == ["call refused", "calls braked"]
    assert caplog.records[1].levelno == logging.WARNING
    rig.now_ms += PAUSE_MS
    answers(rig, *[FakeCall()] * 200)  # all braked: others of their address still wait
    assert [each.message for each in caplog.records[2:]] == ["calls braked"]


def held(wrong: Brake, peer: str = PEER, key: str = "") -> Later[bytes]:
    later = wrong.hold(peer, key, b"no", NOW_MS)
    assert later is not None
    assert not later.settled
    return later


@virtually
async def test_what_is_kept_back_leaves_at_a_rate_however_much_comes_at_once() -> None:
    wrong, loop = Brake(), asyncio.get_running_loop()
    began_s = loop.time()
    many = [held(wrong) for _ in range(brake.HELD_PER_ADDRESS_MAX)]
    assert wrong.hold(PEER, "", b"no", NOW_MS) is None
    held(wrong, "192.0.2.2:1")
    assert await many[0] == b"no"
    assert loop.time() - began_s == pytest.approx(brake.HELD_S)
    await many[brake.FAILURES_PER_S]
    assert loop.time() - began_s == pytest.approx(brake.HELD_S + 1)
    await many[-1]
    turns = (brake.HELD_PER_ADDRESS_MAX - 1) / brake.FAILURES_PER_S
    assert loop.time() - began_s == pytest.approx(brake.HELD_S + turns)
    assert not wrong._held
    held(wrong)


@virtually
async def test_one_key_is_not_guessed_faster_from_many_addresses() -> None:
    wrong, loop = Brake(), asyncio.get_running_loop()
    assert [wrong.fails(peer, "root", NOW_MS) for peer in many_peers(40)] == (
        [False] * brake.FAILURES_PER_S + [True] * 20
    )
    began_s = loop.time()
    many = [held(wrong, peer, "root") for peer in many_peers(40)]
    await many[-1]
    assert loop.time() - began_s == pytest.approx(brake.HELD_S + 39 / brake.FAILURES_PER_S)


@virtually
async def test_a_broker_that_goes_down_keeps_nothing_back() -> None:
    wrong = Brake()
    many = [held(wrong) for _ in range(10)]
    wrong.drain()
    assert all(each.settled for each in many)
    later = wrong.hold(PEER, "", b"no", NOW_MS)
    assert later is not None
    assert later.settled
    await asyncio.sleep(brake.HELD_S * 2)  # their timers find nothing to do
    assert not wrong._held


def test_tokens_come_back() -> None:
    wrong = Brake()
    tries = [wrong.fails(PEER, "", NOW_MS) for _ in range(brake.FAILURES_PER_S + 2)]
    assert tries == [False] * brake.FAILURES_PER_S + [True] * 2
    assert not wrong.fails("192.0.2.2:4711", "", NOW_MS)
    assert not wrong.fails(PEER, "", NOW_MS + 1_000)


def test_streams_of_nobodys_are_kept_back_too(rig: AccessRig) -> None:
    """Reflection, and telemetry: as good to guess by as any call."""

    async def nothing() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async def first(path: str) -> None:
        stream = rig.methods[path].handler(nothing(), rig.by(secret="not-this-secret"))
        await anext(stream)

    async def tried() -> None:
        answers_now = rig.methods[GET_BROKER].handler
        for _ in range(brake.FAILURES_PER_S):
            answers_now(b"", rig.by(secret="not-this-secret"))
        for path in STREAMS:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(first(path), 0.05)

    rig.loop.run_until_complete(tried())


def many_peers(count: int) -> list[str]:
    return [f"10.{each >> 16}.{each >> 8 & 255}.{each & 255}:1" for each in range(count)]


def test_addresses_and_keys_are_bounded() -> None:
    wrong = Brake()
    for number, peer in enumerate(many_peers(3 * brake.LANES_MAX)):
        wrong.fails(peer, f"key-{number}" * 30, NOW_MS)
    assert len(wrong._addresses) == len(wrong._keys) == brake.LANES_MAX
    assert max(map(len, wrong._keys)) == brake.KEY_CHARACTERS_MAX

"""Wrong signatures are slowed down, right ones never, whatever else comes from their address."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from latermq_broker.deferred import Later
from latermq_broker.observability.complaints import PAUSE_MS
from latermq_broker.services.auth import brake
from latermq_broker.services.auth.brake import Brake
from latermq_proto.latermq.v1 import broker_pb2
from support.access_rig import AccessRig
from support.fake_call import FakeCall
from support.virtual_loop import virtually

GET_BROKER = "/latermq.v1.Brokers/GetBroker"
PEER, NOW_MS = "192.0.2.1:4711", 1_000_000


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    made = AccessRig()
    yield made
    made.close()


def answers(rig: AccessRig, *calls: FakeCall) -> list[Any]:
    """What the handler returns at once, or an unsettled Later."""

    async def all_at_once() -> list[Any]:
        return [rig.methods[GET_BROKER].handler(b"", call) for call in calls]

    return rig.loop.run_until_complete(all_at_once())


def code(answer: bytes) -> int:
    return int(broker_pb2.GetBrokerResponse.FromString(answer).status.code)


def test_a_second_s_worth_is_answered_at_once_and_the_rest_kept_back(rig: AccessRig) -> None:
    wrong = [rig.by(secret="not-this-secret")] * (brake.FAILURES_PER_S + 40)
    got = answers(rig, *wrong)
    at_once = [code(each) for each in got if isinstance(each, bytes)]
    held = [each for each in got if isinstance(each, Later)]
    assert (len(at_once), len(held)) == (brake.FAILURES_PER_S + 8, brake.HELD_PER_ADDRESS_MAX)
    assert set(at_once) == {40100}
    assert {code(each.value or b"") for each in held} == {40100}
    assert not any(each.settled for each in held)


def test_a_call_whose_request_comes_after_its_head_is_kept_back_too(rig: AccessRig) -> None:
    async def all_at_once() -> list[Any]:
        wrong = rig.by(secret="not-this-secret")
        admit = rig.methods[GET_BROKER].admit
        assert admit is not None
        return [admit(wrong) for _ in range(brake.FAILURES_PER_S + 40)]

    got = rig.loop.run_until_complete(all_at_once())
    held = [each for each in got if isinstance(each, Later)]
    assert len(held) == brake.HELD_PER_ADDRESS_MAX  # further ones are refused at once
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
    answers(rig, *[FakeCall()] * 200)
    assert len(caplog.records) == 4


@virtually
async def test_what_is_kept_back_comes_a_second_later() -> None:
    wrong = Brake()
    began_s = asyncio.get_running_loop().time()
    later = wrong.hold(PEER, b"no", NOW_MS)
    assert not later.settled
    assert await later == b"no"
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(brake.HELD_MS / 1_000)
    many = [wrong.hold(PEER, b"no", NOW_MS) for _ in range(brake.HELD_PER_ADDRESS_MAX + 1)]
    assert [each.settled for each in many] == [False] * (len(many) - 1) + [True]
    assert not wrong.hold("192.0.2.2:1", b"no", NOW_MS).settled


def test_tokens_come_back() -> None:
    wrong = Brake()
    tries = [wrong.fails(PEER, NOW_MS) for _ in range(brake.FAILURES_PER_S + 2)]
    assert tries == [False] * brake.FAILURES_PER_S + [True] * 2
    assert not wrong.fails("192.0.2.2:4711", NOW_MS)
    assert not wrong.fails(PEER, NOW_MS + 1_000)


def many_peers(count: int) -> list[str]:
    return [f"10.{each >> 16}.{each >> 8 & 255}.{each & 255}:1" for each in range(count)]


def test_addresses_are_bounded() -> None:
    wrong = Brake()
    for peer in many_peers(3 * brake.ADDRESSES_MAX):
        wrong.fails(peer, NOW_MS)
    assert len(wrong._addresses) == brake.ADDRESSES_MAX

"""A user's limits hold for all that adds messages on its behalf, through whatever door."""

import logging
from collections.abc import Iterator
from typing import Final

import pytest

from latermq_broker.catalog.access import Kind, Right, User
from latermq_broker.catalog.limits import Limit, Scope
from latermq_broker.catalog.schedules import Missed, Schedule
from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2
from latermq_proto.latermq.v1 import dead_letter_pb2, schedule_pb2
from support.access_rig import USER, AccessRig
from support.schedule_rig import TOPIC, ScheduleRig
from support.wire_requests import message, send

SEND: Final = "/apache.rocketmq.v2.MessagingService/SendMessage"
V1: Final = "/latermq.v1"
PER_S: Final = 5
STEP_MS: Final = 100
Code: Final = definition_pb2.Code


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    made = AccessRig()
    made.grant(Kind.TOPIC, "*", Right.PUB, Right.SUB, Right.BODY)
    made.grant(Kind.GROUP, "*", Right.SUB, Right.BROWSE, Right.BODY, Right.REDRIVE)
    yield made
    made.close()


def limit(rig: AccessRig | ScheduleRig, **fields: int) -> None:
    rig.engine.limits.set(Limit(scope=Scope.USER, name=USER, **fields), rig.now_ms)


def stored(rig: AccessRig | ScheduleRig, topic: str = "orders") -> int:
    known = rig.engine.catalog.topic(topic)
    return sum(queue.next_offset for queue in rig.engine.topics.ends(known)) if known else 0


def sent(rig: AccessRig, body: bytes = b"x") -> int:
    return rig.code_of(
        SEND, send([message("orders", body)]), service_pb2.SendMessageResponse, rig.by()
    )


def run(rig: AccessRig) -> definition_pb2.Status:
    request = schedule_pb2.ScheduleRequest(name="report").SerializeToString()
    answer = rig.raw(f"{V1}.Schedules/RunSchedule", request, rig.by())
    return schedule_pb2.RunScheduleResponse.FromString(answer).status


def put(rig: AccessRig, body: bytes = b"x") -> None:
    schedule = schedule_pb2.Schedule(name="report", topic="orders", cron="0 0 1 1 *", body=body)
    request = schedule_pb2.PutScheduleRequest(schedule=schedule)
    path = f"{V1}.Schedules/PutSchedule"
    assert rig.code_of(path, request, schedule_pb2.PutScheduleResponse, rig.by()) == Code.OK


def test_sends_and_runs_of_schedules_have_one_rate(rig: AccessRig) -> None:
    put(rig)
    limit(rig, sends_per_s=PER_S)
    seconds = 10
    for _ in range(seconds * 1_000 // STEP_MS):
        for _ in range(3):
            before = stored(rig)
            assert (sent(rig) == Code.OK) == (stored(rig) > before)
            before = stored(rig)
            status = run(rig)
            assert (status.code == Code.OK) == (stored(rig) > before)
            if status.code != Code.OK:
                assert status.code == Code.TOO_MANY_REQUESTS
                assert f"user {USER} may send {PER_S} messages per second" in status.message
        rig.now_ms += STEP_MS
    assert (seconds - 1) * PER_S <= stored(rig) <= (seconds + 1) * PER_S + 1


def test_runs_of_schedules_keep_to_the_bytes(rig: AccessRig) -> None:
    put(rig, b"x" * 4_000)
    limit(rig, bytes_per_s=5_000)
    for _ in range(100):
        run(rig)
        rig.now_ms += STEP_MS
    assert 8 <= stored(rig) <= 14


def test_a_redrive_to_a_topic_goes_at_the_users_rate(rig: AccessRig) -> None:
    count = 20
    for number in range(count):
        rig.die(f"m-{number}")
    rig.engine.ensure_topic("again", rig.now_ms)
    limit(rig, sends_per_s=PER_S)
    began_ms = rig.now_ms

    def now_ms() -> int:
        rig.now_ms += 20
        return rig.now_ms

    rig.committer.now_ms = now_ms  # type: ignore[method-assign]
    request = dead_letter_pb2.RedriveDeadLettersRequest(group="billing", to_topic="again")
    path = f"{V1}.DeadLetters/RedriveDeadLetters"
    told = rig.stream(path, request, dead_letter_pb2.DeadLetterProgress, rig.by())
    assert (told[-1].changed_count, told[-1].failed_count, told[-1].done) == (count, 0, True)
    assert stored(rig, "again") == count
    assert rig.now_ms - began_ms >= (count - 2 * PER_S) * 1_000 // PER_S


class TestTicks:
    def limited(self, missed: Missed) -> ScheduleRig:
        """40 schedules of the user that tick once a second, and one of somebody else."""
        rig = ScheduleRig()
        limit(rig, sends_per_s=PER_S)
        shop = rig.engine.users.create(USER, "the-secret-of-shop", admin=False, now_ms=rig.now_ms)
        for number in range(40):
            self.put(rig, f"s-{number}", missed, shop)
        self.put(rig, "calm", missed, None)
        return rig

    def put(self, rig: ScheduleRig, name: str, missed: Missed, user: User | None) -> None:
        wanted = Schedule(name=name, topic=TOPIC, every_ms=1_000, missed=missed)
        rig.engine.schedules.put(wanted, rig.now_ms, user=user)

    @pytest.mark.parametrize("missed", [Missed.ONE, Missed.ALL])
    def test_a_users_schedules_tick_at_its_rate_and_others_on_time(
        self, missed: Missed, caplog: pytest.LogCaptureFixture
    ) -> None:
        rig = self.limited(missed)
        seconds = 20
        with caplog.at_level(logging.WARNING):
            for _ in range(seconds * 1_000 // STEP_MS):
                rig.advance(STEP_MS)
        came = rig.came()
        calm = [tick for name, tick in came if name == "calm"]
        assert len(calm) == seconds
        own = len(came) - len(calm)
        assert (seconds - 2) * PER_S <= own <= (seconds + 1) * PER_S + 1
        told = [each for each in caplog.records if "schedules wait" in each.message]
        assert len(told) == 1, "once, not at each tick"
        assert not any(rig.engine.schedules.get(f"s-{n}").paused for n in range(40))

    def test_they_go_on_when_the_limit_goes(self) -> None:
        rig = self.limited(Missed.ONE)
        rig.advance(5_000)
        rig.came()
        rig.engine.limits.unset(Scope.USER, USER, rig.now_ms)
        rig.advance(1_000)
        assert len({name for name, _ in rig.came()}) == 41

    def test_while_they_wait_the_engine_does_not_spin(self) -> None:
        rig = self.limited(Missed.ONE)
        ticks = 0
        for _ in range(50):
            rig.now_ms += STEP_MS
            while True:
                due_ms = rig.engine.tick(rig.now_ms)
                ticks += 1
                if due_ms is None or due_ms > rig.now_ms:
                    break
        assert ticks < 200

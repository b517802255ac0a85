"""latermq.v1 Schedules (schedule.proto): what is taken, what is refused, who may."""

from collections.abc import Iterator
from typing import Any

import pytest

from latermq_broker.catalog.access import Kind, Right
from latermq_broker.config.config import SchedulesConfig
from latermq_broker.engine.state.model import TopicType
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.apache.rocketmq.v2.definition_pb2 import Code
from latermq_proto.latermq.v1 import schedule_pb2
from support.access_rig import AccessRig
from support.v1_rig import V1Rig

SCHEDULES = "/latermq.v1.Schedules"
MINUTE = 60_000


@pytest.fixture
def rig() -> Iterator[V1Rig]:
    rig = V1Rig()
    yield rig
    rig.close()


def put(rig: V1Rig, *, keep: bool = False, **fields: Any) -> schedule_pb2.PutScheduleResponse:
    about = {"name": "report", "topic": "reports"} | fields
    if "cron" not in about:
        about = {"every_ms": MINUTE} | about
    request = schedule_pb2.PutScheduleRequest(schedule=schedule_pb2.Schedule(**about), keep=keep)
    return rig.call(f"{SCHEDULES}/PutSchedule", request, schedule_pb2.PutScheduleResponse)


def response_of(verb: str) -> type[Any]:
    own = {"Run": schedule_pb2.RunScheduleResponse, "Remove": schedule_pb2.RemoveScheduleResponse}
    return own.get(verb, schedule_pb2.ScheduleResponse)


def ask(rig: V1Rig, verb: str, name: str = "report") -> Any:
    request = schedule_pb2.ScheduleRequest(name=name)
    return rig.call(f"{SCHEDULES}/{verb}Schedule", request, response_of(verb))


def listed(rig: V1Rig, **fields: Any) -> tuple[list[str], str]:
    request = schedule_pb2.ListSchedulesRequest(**fields)
    page = rig.call(f"{SCHEDULES}/ListSchedules", request, schedule_pb2.ListSchedulesResponse)
    assert not any(each.body or each.properties for each in page.schedules)
    return [each.name for each in page.schedules], page.next_page_token


def came(rig: V1Rig, topic: str = "reports") -> list[tuple[definition_pb2.Message, Any]]:
    found = []
    for each in rig.receive("readers", topic=topic):
        system = definition_pb2.SystemProperties.FromString(each.sys)
        found.append((definition_pb2.Message.FromString(each.rest), system))
    return found


def test_the_message_of_a_tick(rig: V1Rig) -> None:
    put(
        rig, body=b"routine", tag="daily", keys=["k1", "k2"], properties={"tenant": "north"},
        every_ms=1_000,
    )  # fmt: skip
    rig.advance(1_000)
    ((message, system),) = came(rig)
    tick = message.user_properties["latermq-tick"]
    assert message.body == b"routine"
    assert dict(message.user_properties) == {
        "tenant": "north", "latermq-schedule": "report", "latermq-tick": tick,
    }  # fmt: skip
    assert tick.endswith(".000Z")
    assert (system.tag, list(system.keys)) == ("daily", ["k1", "k2"])
    assert len(system.message_id) == 34
    assert system.message_id.startswith("01")
    assert system.body_digest.checksum


def test_without_a_body_it_is_the_time(rig: V1Rig) -> None:
    put(rig, every_ms=1_000)
    rig.advance(1_000)
    ((message, _),) = came(rig)
    assert message.body.decode() == message.user_properties["latermq-tick"]


def test_made_altered_and_the_same_again(rig: V1Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "latermq.services")
    made = put(rig, properties={"a": "1", "b": "2"})
    assert made.status.code == Code.OK
    assert not made.HasField("before")
    again = put(rig, properties={"b": "2", "a": "1"})
    assert again.before == again.schedule == made.schedule
    assert list(again.differences) == []
    kept = put(rig, keep=True, cron="0 6 * * 1-5", zone="Europe/Berlin")
    assert list(kept.differences) == ["every_ms", "cron", "zone", "message"]
    assert kept.schedule == made.schedule
    assert caplog.records == []
    altered = put(rig, cron="0 6 * * 1-5", zone="Europe/Berlin")
    (line,) = caplog.records
    assert vars(line)["fields"] == "every_ms, cron, zone, message"
    assert altered.before == made.schedule
    assert altered.schedule.cron == "0 6 * * 1-5"
    assert ask(rig, "Get").schedule == altered.schedule


def test_pause_resume_run_and_remove(rig: V1Rig) -> None:
    put(rig, every_ms=1_000)
    paused = ask(rig, "Pause").schedule
    assert (paused.paused, paused.next_at_ms) == (True, 0)
    rig.advance(10_000)
    assert came(rig) == []
    assert ask(rig, "Run").status.code == Code.OK
    assert len(came(rig)) == 1
    resumed = ask(rig, "Resume").schedule
    assert resumed.next_at_ms > rig.now_ms
    assert (resumed.ticks, resumed.last_at_ms) == (0, 0)
    assert ask(rig, "Remove").status.code == Code.OK
    for verb in ("Get", "Pause", "Resume", "Run", "Remove"):
        assert ask(rig, verb).status.code == Code.NOT_FOUND


def test_pages(rig: V1Rig) -> None:
    for name in ("c", "a", "b"):
        put(rig, name=name)
    names, token = listed(rig, page_size=2)
    assert names == ["a", "b"]
    assert listed(rig, page_token=token) == (["c"], "")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": ""}, "name of a schedule"),
        ({"name": "a b"}, "not 'a b'"),
        ({"name": "x" * 128}, "1 to 127"),
        ({"topic": ""}, "topic is blank"),
        ({"topic": "%DLQ%billing"}, "no schedule sends to '%DLQ%billing'"),
        ({"every_ms": 0}, "either every_ms or cron"),
        ({"every_ms": 1_000, "cron": "@daily"}, "either every_ms or cron"),
        ({"every_ms": 999}, "every 999 ms is not within 1000 ms"),
        ({"every_ms": -5}, "every -5 ms"),
        ({"every_ms": 1 << 60}, "is not within"),
        ({"zone": "Europe/Berlin"}, "time zone 'Europe/Berlin' is for cron"),
        ({"cron": "61 * * * *"}, "cron '61 * * * *': bad minute"),
        ({"cron": "@daily", "zone": "Mars/Base"}, "time zone 'Mars/Base' is not known"),
        ({"missed": 7}, "missed 7 is unknown"),
        ({"properties": {"latermq-tick": "x"}}, "latermq-tick is the broker's"),
        ({"properties": {"KEYS": "x"}}, "reserved"),
        ({"tag": "a|b"}, "tag"),
        ({"keys": [" "]}, "only blanks"),
        ({"body": b"x" * 5_000}, "schedules.message_bytes_max"),
        ({"properties": {"LATERMQ_DEDUP_ID": "a"}}, "no dedup id"),
        ({"priority": -1}, "negative"),
        ({"priority": 1}, "PRIORITY does not fit"),
        ({"message_group": "g" * 64}, "64 bytes"),
    ],
)  # fmt: skip
def test_what_is_refused(rig: V1Rig, fields: dict[str, Any], said: str) -> None:
    answer = put(rig, **fields)
    assert 40_000 <= answer.status.code < 50_000
    assert said in answer.status.message
    assert listed(rig) == ([], "")


def test_a_topic_that_takes_no_such_message(rig: V1Rig) -> None:
    rig.engine.topics.create("lanes", TopicType.FIFO, 1, rig.now_ms)
    refused = put(rig, topic="lanes")
    assert "does not fit topic lanes" in refused.status.message
    assert put(rig, topic="lanes", message_group="g").status.code == Code.OK
    rig.advance(MINUTE)
    ((_, system),) = came(rig, "lanes")
    assert system.message_group == "g"


def test_what_is_refused_makes_no_topic() -> None:
    rig = V1Rig(schedules=SchedulesConfig(count_max=1))
    try:
        assert put(rig).status.code == Code.OK
        assert "at most 1 may be (schedules.count_max)" in (
            put(rig, name="more", topic="new").status.message
        )
        assert "remove it first" in put(rig, topic="new").status.message
        assert put(rig, topic="new", keep=True).differences == ["topic"]
        assert rig.engine.catalog.topic("new") is None
    finally:
        rig.close()


def test_a_topic_that_is_not_there() -> None:
    rig = V1Rig(auto_create=False)
    try:
        assert put(rig).status.code == Code.TOPIC_NOT_FOUND
    finally:
        rig.close()


def test_resuming_one_whose_topic_is_gone_says_so(rig: V1Rig) -> None:
    put(rig, every_ms=1_000)
    rig.engine.topics.delete("reports", rig.now_ms)
    rig.advance(1_000)
    assert ask(rig, "Get").schedule.fault == "topic not found: reports"
    rig.engine.topics.create("reports", TopicType.FIFO, 1, rig.now_ms)
    assert "does not fit" in ask(rig, "Resume").status.message
    rig.engine.topics.delete("reports", rig.now_ms)
    assert ask(rig, "Resume").schedule.fault == ""


def test_who_may() -> None:
    """Whoever may send to a schedule's topic may do all with it; who may look there sees it."""
    rig = AccessRig()

    def code(verb: str, request: Any, response: Any) -> int:
        return rig.code_of(f"{SCHEDULES}/{verb}", request, response, rig.by())

    def seen() -> list[str]:
        data = schedule_pb2.ListSchedulesRequest().SerializeToString()
        answer = rig.raw(f"{SCHEDULES}/ListSchedules", data, rig.by())
        page = schedule_pb2.ListSchedulesResponse.FromString(answer)
        return [each.name for each in page.schedules]

    try:
        rig.grant(Kind.TOPIC, "reports", Right.PUB)
        for name, topic in (("report", "reports"), ("secret", "others")):
            schedule = schedule_pb2.Schedule(name=name, topic=topic, every_ms=MINUTE)
            request = schedule_pb2.PutScheduleRequest(schedule=schedule)
            answer = rig.code_of(
                f"{SCHEDULES}/PutSchedule",
                request,
                schedule_pb2.PutScheduleResponse,
                rig.by("root", "the-secret-of-root"),
            )
            assert answer == Code.OK
            expected = Code.OK if topic == "reports" else Code.FORBIDDEN
            assert code("PutSchedule", request, schedule_pb2.PutScheduleResponse) == expected
            for verb in ("Get", "Pause", "Resume", "Run"):
                named = schedule_pb2.ScheduleRequest(name=name)
                answer = code(f"{verb}Schedule", named, response_of(verb))
                assert answer == (Code.OK if topic == "reports" else Code.NOT_FOUND), verb
        # By the name of another's schedule nobody learns what it sends, nor where.
        mine = schedule_pb2.Schedule(name="secret", topic="reports", every_ms=MINUTE)
        for keep in (True, False):
            request = schedule_pb2.PutScheduleRequest(schedule=mine, keep=keep)
            raw = rig.raw(f"{SCHEDULES}/PutSchedule", request.SerializeToString(), rig.by())
            said = schedule_pb2.PutScheduleResponse.FromString(raw)
            assert said.status.code == Code.FORBIDDEN
            assert not said.HasField("schedule")
            assert not said.HasField("before")
        assert seen() == ["report"]
        rig.grant(Kind.TOPIC, "others", Right.BROWSE)
        assert seen() == ["report", "secret"]
        named = schedule_pb2.ScheduleRequest(name="secret")
        response = schedule_pb2.RemoveScheduleResponse
        assert code("RemoveSchedule", named, response) == Code.FORBIDDEN
    finally:
        rig.close()


def test_who_only_sends_is_not_shown_the_message() -> None:
    """A schedule's message is one of its topic's: `sub` or `body` there shows it."""
    rig = AccessRig()

    def asked(verb: str, request: Any) -> Any:
        raw = rig.raw(f"{SCHEDULES}/{verb}Schedule", request.SerializeToString(), rig.by())
        put = schedule_pb2.PutScheduleResponse
        return (put if verb == "Put" else response_of(verb)).FromString(raw)

    try:
        rig.grant(Kind.TOPIC, "reports", Right.PUB)
        wanted = schedule_pb2.Schedule(
            name="report", topic="reports", every_ms=MINUTE, body=b"secret", tag="t", keys=["k"]
        )
        named = schedule_pb2.ScheduleRequest(name="report")
        requests = {
            "Put": schedule_pb2.PutScheduleRequest(schedule=wanted, keep=True),
            **dict.fromkeys(("Get", "Pause", "Resume"), named),
        }
        for right, sees in ((Right.PUB, False), (Right.BROWSE, False), (Right.SUB, True)):
            rig.grant(Kind.TOPIC, "reports", right)
            for verb, request in requests.items():
                answer = asked(verb, request)
                befores = [answer.before] if verb == "Put" and answer.HasField("before") else []
                for each in (answer.schedule, *befores):
                    assert each.message_withheld is not sees
                    told = (b"secret", "t", ["k"]) if sees else (b"", "", [])
                    assert (each.body, each.tag, list(each.keys)) == told
    finally:
        rig.close()


def test_one_user_does_not_take_all_the_schedules_there_may_be() -> None:
    rig = AccessRig(schedules=SchedulesConfig(count_max=4))

    def make(name: str, *who: str) -> Any:
        schedule = schedule_pb2.Schedule(name=name, topic="reports", every_ms=MINUTE)
        request = schedule_pb2.PutScheduleRequest(schedule=schedule)
        answer = rig.raw(f"{SCHEDULES}/PutSchedule", request.SerializeToString(), rig.by(*who))
        return schedule_pb2.PutScheduleResponse.FromString(answer).status

    root = "root", "the-secret-of-root"
    try:
        rig.grant(Kind.TOPIC, "reports", Right.PUB)
        assert [make(name).code for name in "aba"] == [Code.OK] * 3
        refused = make("c")
        assert refused.code == Code.TOO_MANY_REQUESTS
        assert "user shop has 2 schedules, at most 2 of 4" in refused.message
        assert [make(name, *root).code for name in "cd"] == [Code.OK] * 2
        assert "there are 4 schedules" in make("e", *root).message
        rig.engine.schedules.remove("a", rig.now_ms)
        rig.crash()
        assert rig.engine.schedules.get("b").made_by == "shop"
        assert rig.engine.schedules.get("c").made_by == ""
    finally:
        rig.close()


def declare(
    rig: V1Rig, *names: str, app: str = "billing", worker: str = "w1", ends: bool = False
) -> schedule_pb2.DeclareSchedulesResponse:
    request = schedule_pb2.DeclareSchedulesRequest(app=app, worker=worker, names=names, ends=ends)
    response = schedule_pb2.DeclareSchedulesResponse
    return rig.call(f"{SCHEDULES}/DeclareSchedules", request, response)


def prune(rig: V1Rig, **fields: Any) -> schedule_pb2.PruneSchedulesResponse:
    request = schedule_pb2.PruneSchedulesRequest(**fields)
    return rig.call(f"{SCHEDULES}/PruneSchedules", request, schedule_pb2.PruneSchedulesResponse)


def put_by(rig: V1Rig, app: str, name: str) -> schedule_pb2.PutScheduleResponse:
    schedule = schedule_pb2.Schedule(name=name, topic="reports", every_ms=MINUTE)
    request = schedule_pb2.PutScheduleRequest(schedule=schedule, keep=True, app=app)
    return rig.call(f"{SCHEDULES}/PutSchedule", request, schedule_pb2.PutScheduleResponse)


def declarers(rig: V1Rig, name: str) -> tuple[dict[str, bool], bool]:
    """Return whether each app runs, and whether the schedule is told of."""
    schedule = ask(rig, "Get", name).schedule
    running = {each.app: each.running for each in schedule.declarers}
    assert not any(each.running and each.since_ms for each in schedule.declarers)
    return running, schedule.undeclared_since_ms > 0


def test_who_declares_a_schedule(rig: V1Rig) -> None:
    put(rig, name="by-hand")
    assert declarers(rig, "by-hand") == ({"": False}, False)
    assert put_by(rig, "billing", "by-hand").HasField("before")
    assert declarers(rig, "by-hand") == ({"": False, "billing": False}, False)
    assert [each.app for each in put_by(rig, "billing", "old").schedule.declarers] == ["billing"]
    assert declarers(rig, "old") == ({"billing": False}, False)
    assert declare(rig, "old", "none").status.code == Code.OK
    assert declarers(rig, "old") == ({"billing": True}, False)
    put_by(rig, "shipping", "old")
    assert declare(rig, ends=True).status.code == Code.OK
    assert declarers(rig, "old") == ({"billing": False, "shipping": False}, False)
    declare(rig, "old", app="shipping")
    declare(rig, app="shipping", ends=True)
    assert declarers(rig, "old") == ({"billing": False, "shipping": False}, True)
    put(rig, name="old")  # by hand, but it was there
    assert declarers(rig, "old") == ({"billing": False, "shipping": False}, True)


def test_pruning(rig: V1Rig) -> None:
    put(rig, name="by-hand")
    for app, name in (
        ("billing", "by-hand"), ("billing", "kept"), ("billing", "old"), ("billing", "shared"),
        ("shipping", "shared"), ("shipping", "theirs"), ("billing", "runs"),
    ):  # fmt: skip
        put_by(rig, app, name)
    declare(rig, "runs")
    for app, name in (("billing", "old"), ("shipping", "theirs"), ("shipping", "shared")):
        declare(rig, name, app=app, worker="w2")
        declare(rig, app=app, worker="w2", ends=True)
    put_by(rig, "billing", "unheard")
    assert prune(rig, by_code=True).status.code == Code.BAD_REQUEST
    assert not prune(rig, app="billing", dry_run=True, keep=["old"]).removed
    about: dict[str, Any] = {"app": "billing", "keep": ["kept"], "by_code": True}
    dry = prune(rig, dry_run=True, **about)
    done = prune(rig, **about)
    for answer in (dry, done):
        assert answer.status.code == Code.OK
        assert [each.name for each in answer.removed] == ["old", "unheard"]
        assert [each.name for each in answer.kept] == ["by-hand", "runs", "shared"]
        assert answer.removed[0].undeclared_since_ms
    assert listed(rig)[0] == ["by-hand", "kept", "runs", "shared", "theirs"]
    assert declarers(rig, "shared")[0] == {"shipping": False}
    assert declarers(rig, "by-hand") == ({"": False}, False)
    assert not prune(rig, idle_ms=MINUTE).removed
    rig.advance(1_000)
    pruned = prune(rig, idle_ms=1_000)
    assert [each.name for each in pruned.removed] == ["shared", "theirs"]
    assert listed(rig)[0] == ["by-hand", "kept", "runs"]


@pytest.mark.parametrize(
    ("app", "worker", "names", "text"),
    [
        ("", "w", (), "the app that declares schedules has no name"),
        ("a", "", (), "the worker that declares schedules has no name"),
        ("a\n", "w", (), "app 'a"),
        ("a" * 256, "w", (), "1 to 255 printable"),
        ("a", "w" * 256, (), "1 to 255 printable"),
        ("a", "w", ("x",) * 10_001, "10001 schedules are named; at most 10000"),
    ],
)
def test_declarations_that_are_refused(
    rig: V1Rig, app: str, worker: str, names: tuple[str, ...], text: str
) -> None:
    refused = declare(rig, *names, app=app, worker=worker)
    assert refused.status.code == Code.BAD_REQUEST
    assert text in refused.status.message
    if names:
        assert text in prune(rig, keep=names).status.message
    assert prune(rig, idle_ms=-1).status.code == Code.BAD_REQUEST


def test_who_may_declare_and_prune() -> None:
    """Nobody's word counts for a schedule that they may not send for."""
    rig = AccessRig()
    try:
        rig.grant(Kind.TOPIC, "reports", Right.PUB)
        root = rig.by("root", "the-secret-of-root")
        for name, topic in (("report", "reports"), ("secret", "others")):
            schedule = schedule_pb2.Schedule(name=name, topic=topic, every_ms=MINUTE)
            put_it = schedule_pb2.PutScheduleRequest(schedule=schedule, app="billing")
            rig.raw(f"{SCHEDULES}/PutSchedule", put_it.SerializeToString(), root)
        mine = schedule_pb2.DeclareSchedulesRequest(
            app="billing", worker="w", names=["report", "secret"]
        )
        rig.raw(f"{SCHEDULES}/DeclareSchedules", mine.SerializeToString(), rig.by())
        assert rig.engine.declarations.running() == [("billing", "report")]
        mine.ends = True
        rig.raw(f"{SCHEDULES}/DeclareSchedules", mine.SerializeToString(), rig.by())
        every = schedule_pb2.PruneSchedulesRequest()
        data = rig.raw(f"{SCHEDULES}/PruneSchedules", every.SerializeToString(), rig.by())
        pruned = schedule_pb2.PruneSchedulesResponse.FromString(data)
        assert ([each.name for each in pruned.removed], list(pruned.kept)) == (["report"], [])
        assert [each.name for each in rig.engine.schedules.table.all()] == ["secret"]
    finally:
        rig.close()

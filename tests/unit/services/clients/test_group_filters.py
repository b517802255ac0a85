"""Consumers of one group that filter differently: said once in the log, shown while it is so."""

import logging

import pytest

from latermq_broker.config.config import ServerConfig
from latermq_broker.engine.state.model import TagFilter, filter_text
from latermq_broker.services.clients import group_filters
from latermq_broker.services.clients.session import ClientKind, Session, Sessions
from latermq_broker.services.wire import wire
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import group_pb2
from support.v1_rig import V1Rig

SILENT_MS = ServerConfig().client_silent_ms_max


def consumer(
    client_id: str, expression: str, *, sql: bool = False, group: str = "g", topic: str = "t"
) -> Session:
    settings = definition_pb2.Settings()
    settings.subscription.group.name = group
    entry = settings.subscription.subscriptions.add()
    entry.topic.name = topic
    entry.expression.expression = expression
    entry.expression.type = definition_pb2.SQL if sql else definition_pb2.TAG
    return Session(
        client_id=client_id,
        kind=ClientKind.PUSH_CONSUMER,
        group=group,
        topics=frozenset({topic}),
        settings=settings,
        language="JAVA",
        version="5.2.0",
        seen_ms=0,
    )


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(ServerConfig())


def shown(sessions: Sessions, group: str = "g") -> list[tuple[str, list[tuple[str, int]]]]:
    unequal = sessions.filters.unequal(group)
    return [
        (topic, [(use.expression, use.client_count) for use in uses]) for topic, uses in unequal
    ]


def warned(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, list[str]]]:
    return [
        (one.__dict__["group"], one.__dict__["topic"], one.__dict__["filters"])
        for one in caplog.records
        if "filter differently" in one.message
    ]


def test_what_differs_is_warned_of_once_and_shown_while_it_does(
    sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    sessions.put(consumer("c1", "a"))
    sessions.put(consumer("c2", "a"))
    assert (shown(sessions), warned(caplog)) == ([], [])
    sessions.put(consumer("c3", "b"))
    assert shown(sessions) == [("t", [("a", 2), ("b", 1)])]
    assert warned(caplog) == [("g", "t", ["a", "b"])]
    sessions.put(consumer("c3", "a"))  # its settings changed
    assert shown(sessions) == []
    sessions.put(consumer("c4", "b"))
    sessions.remove("c4")
    assert (shown(sessions), len(warned(caplog))) == ([], 1)
    sessions.put(consumer("c5", "TAGS = 'a'", sql=True))
    assert [expression for expression, _ in shown(sessions)[0][1]] == ["a", "TAGS = 'a'"]
    sessions.expire(1 << 60)
    assert not sessions.filters._uses
    assert not sessions.filters._by_client


def test_the_same_written_otherwise_is_the_same(sessions: Sessions) -> None:
    for number, expression in enumerate(["a||b", "b || a"]):
        sessions.put(consumer(f"c{number}", expression))
    for number, expression in enumerate(["", "*"]):
        sessions.put(consumer(f"d{number}", expression, topic="other"))
    sessions.put(consumer("e", "c", group="another"))
    assert shown(sessions) == []


def test_what_is_shown_and_said_is_bounded(
    sessions: Sessions, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_filters, "WARNED_MAX", 1)
    for number in range(40):
        sessions.put(consumer(f"c{number}", f"tag{number}" + "x" * 1_000))
        sessions.put(consumer(f"d{number}", f"tag{number}", group="another"))
    ((_, uses),) = shown(sessions)
    assert len(uses) == group_filters.SHOWN_MAX
    assert all(len(expression) == 200 for expression, _ in uses)
    assert len(warned(caplog)) == 1


def receive(sessions: Sessions, client_id: str, expression: str, now_ms: int = 0) -> None:
    wanted = wire.message_filter(definition_pb2.FilterExpression(expression=expression))
    declares = sessions.get(client_id) is not None
    sessions.filters.note(client_id, ("g", "t"), wanted, expression, now_ms, declares=declares)


def test_who_declares_nothing_is_seen_by_what_it_receives(
    sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    sessions.put(consumer("c1", "a"))
    receive(sessions, "c1", "a")
    receive(sessions, "bare", "a")
    assert (shown(sessions), warned(caplog)) == ([], [])
    for _ in range(3):
        receive(sessions, "bare", "b")
    assert shown(sessions) == [("t", [("a", 1), ("b", 1)])]
    assert warned(caplog) == [("g", "t", ["a", "b"])]
    receive(sessions, "c1", "b")  # otherwise than it declared
    assert shown(sessions) == []
    receive(sessions, "bare", "")
    sessions.remove("bare")
    assert shown(sessions) == []
    receive(sessions, "bare", "a")
    sessions.put(consumer("bare", "b"))  # it declares something in the end
    assert shown(sessions) == []
    sessions.remove("bare")
    sessions.remove("c1")
    assert_nothing_is_kept(sessions)


def test_who_declares_nothing_and_is_silent_is_forgotten(sessions: Sessions) -> None:
    silent_ms = ServerConfig().client_silent_ms_max
    receive(sessions, "bare-1", "a", 0)
    receive(sessions, "bare-2", "b", 0)
    receive(sessions, "bare-1", "a", 10)
    sessions.expire(silent_ms)
    assert shown(sessions) == [("t", [("a", 1), ("b", 1)])]
    sessions.expire(silent_ms + 1)
    assert shown(sessions) == []
    sessions.expire(silent_ms + 11)
    assert_nothing_is_kept(sessions)


def test_what_is_noted_of_receives_is_bounded(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_filters, "NOTED_MAX", 2)
    for number in range(4):
        receive(sessions, f"bare-{number}", f"tag{number}")
    assert shown(sessions) == [("t", [("tag0", 1), ("tag1", 1)])]
    sessions.put(consumer("c", "b"))
    assert ("b", 1) in shown(sessions)[0][1]
    for number in range(4):
        sessions.remove(f"bare-{number}")
    sessions.remove("c")
    assert_nothing_is_kept(sessions)


def assert_nothing_is_kept(sessions: Sessions) -> None:
    filters = sessions.filters
    kept = (filters._uses, filters._by_client, filters._noted, filters._seen_ms)
    assert (kept, filters._noted_count) == (({}, {}, {}, {}), 0)
    assert (filters._warned, filters._changed) == (set(), set())
    assert (filters._fading, filters._wanted) == ({}, {})


# --- what live consumers want ------------------------------------------------------------------


def wanted(sessions: Sessions, now_ms: int = 0) -> set[str]:
    return {filter_text(each) for each in sessions.filters.wanted(("g", "t"), now_ms)}


def test_live_consumers_want_what_they_declare_or_receive_by(sessions: Sessions) -> None:
    assert wanted(sessions) == set()
    sessions.put(consumer("c1", "a"))
    receive(sessions, "bare", "b")
    assert wanted(sessions) == {"tags:a", "tags:b"}
    assert sessions.filters.wanted(("g", "t"), 1) is sessions.filters.wanted(("g", "t"), 2)
    sessions.remove("c1")
    assert wanted(sessions) == {"tags:b"}
    sessions.put(consumer("c2", ""))
    assert wanted(sessions) == {"", "tags:b"}
    sessions.expire(SILENT_MS + 1)
    assert wanted(sessions) == set()


def test_what_a_client_wanted_before_is_wanted_for_a_while(
    sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    changes: list[tuple[str, ...]] = []
    sessions.filters.on_change = lambda *where: changes.append((*where[:3], filter_text(where[3])))
    sessions.put(consumer("c", "a"))
    receive(sessions, "c", "a", 0)
    sessions.put(consumer("c", "a"))  # as clients repeat it
    receive(sessions, "c", "b", 10)
    assert changes == [("g", "t", "c", "tags:b")]
    assert wanted(sessions, SILENT_MS + 9) == {"tags:a", "tags:b"}
    assert wanted(sessions, SILENT_MS + 10) == {"tags:b"}
    [told] = [one for one in caplog.records if "has another filter" in one.message]
    assert told.__dict__["filters"] == ["tags:a", "tags:b"]
    sessions.put(consumer("c", "a"))
    assert changes[1:] == [("g", "t", "c", "tags:a")]


def test_a_client_that_goes_on_with_its_old_filter_keeps_what_it_declared(
    sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    sessions.put(consumer("go", "a"))
    receive(sessions, "go", "a")
    sessions.put(consumer("go", "b"))
    for minute in range(10):
        receive(sessions, "go", "a", minute * 60_000)
        assert wanted(sessions, minute * 60_000) == {"tags:a", "tags:b"}
    assert len(warned(caplog)) == 1


def test_a_client_that_receives_by_two_filters_wants_both(sessions: Sessions) -> None:
    for minute in range(10):
        receive(sessions, "bare", "ab"[minute % 2], minute * 60_000)
        assert wanted(sessions, minute * 60_000) >= ({"tags:a", "tags:b"} if minute else set())


def test_of_very_many_filters_everything_is_wanted(sessions: Sessions) -> None:
    for number in range(group_filters.WANTED_MAX + 1):
        receive(sessions, f"bare-{number}", f"tag{number}")
    assert wanted(sessions) == {""}
    sessions.expire(1 << 60)
    for number in range(group_filters.FADING_MAX * 2):
        receive(sessions, "bare", f"tag{number}")
    assert len(sessions.filters._fading["g", "t"]) == group_filters.FADING_MAX + 1
    assert wanted(sessions) == {""}
    sessions.remove("bare")


def test_what_was_wanted_before_a_start_is_wanted_for_a_while(sessions: Sessions) -> None:
    before = (("g", "t"), (TagFilter(frozenset("a")),))
    sessions.filters.before = lambda: [before]
    receive(sessions, "bare", "b", 100)
    assert wanted(sessions, 100) == {"tags:a", "tags:b"}
    assert shown(sessions) == []  # nobody who is there
    assert wanted(sessions, 99 + SILENT_MS) == {"tags:a", "tags:b"}
    assert wanted(sessions, 100 + SILENT_MS) == {"tags:b"}


def test_a_group_shows_it() -> None:
    rig = V1Rig()
    rig.engine.ensure_group("g", rig.now_ms)
    for client_id, expression in (("c1", "a"), ("c2", "b"), ("c3", "b")):
        rig.sessions.put(consumer(client_id, expression))
    request = group_pb2.GetGroupRequest(name="g")
    group = rig.call("/latermq.v1.Groups/GetGroup", request, group_pb2.GroupResponse).group
    (unequal,) = group.unequal_filters
    assert unequal.topic == "t"
    told = [(use.expression, use.client_count) for use in unequal.filters]
    assert told == [("b", 2), ("a", 1)]
    rig.close()

"""Each row of the table of client quirks: whom it is for, what it does (protocol.md 7.1, 11)."""

import pytest

from latermq_broker.catalog.catalog import Group
from latermq_broker.config.config import Config, DeliveryConfig, ServerConfig
from latermq_broker.errors import BadRequestError, IllegalPollingTimeError, NotFoundError
from latermq_broker.services.call.answers import Caller
from latermq_broker.services.clients import settings as client_settings
from latermq_broker.services.clients.client_quirks import TABLE, Quirk, quirks_of
from latermq_broker.services.clients.pushed_settings import push_settings
from latermq_broker.services.clients.replies import Replies
from latermq_broker.services.clients.session import ClientKind, Session, Sessions
from latermq_broker.services.messaging.polling import polling_ms
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2
from latermq_proto.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from latermq_proto.google.protobuf.duration_pb2 import Duration
from support.fake_call import FakeCall

CONFIG = Config()
LADDER_MS = DeliveryConfig().retry_ladder_ms
FULL = Quirk.PAUSES_WHEN_FULL
NODE = Quirk.EXPONENTIAL_ONLY | Quirk.SECONDS_FOR_MS | Quirk.DEAF_TO_OLD_STREAMS | FULL
CPP = Quirk.LADDER_ONE_AHEAD | Quirk.NO_PUSHED_SETTINGS
PYTHON = Quirk.NO_PUSHED_SETTINGS | Quirk.ANSWERS_NO_QUESTIONS | FULL
OLD = Quirk.OLD_POLLING_CODE


@pytest.mark.parametrize(
    ("language", "version", "quirks"),
    [
        ("HTTP", "1.0.7", NODE | OLD),
        ("HTTP", "1.0.0-beta", NODE | OLD),
        ("http", "v1.0", NODE),
        ("HTTP", "1.0.8", NODE | OLD),
        ("HTTP", "1.0.9", FULL | OLD),
        ("HTTP", "", FULL | OLD),
        ("HTTP", "6.0", FULL),
        ("CPP", "5.1.0", CPP),
        ("CPP", "", CPP | OLD),
        ("PYTHON", "5.1.2", PYTHON),
        ("PYTHON", "latermq-0.1.0", Quirk.NONE),
        ("RUST", "5.0.0", Quirk.ANSWERS_NO_QUESTIONS | OLD),
        ("RUST", "5.0.3", Quirk.ANSWERS_NO_QUESTIONS),
        ("JAVA", "5.2.1", FULL),
        ("JAVA", "1.0.7", FULL | OLD),
        ("GO", "5.1.4", Quirk.PASSES_FAILURES_BY | FULL),
        ("GO", "5.1.5", FULL),
        ("DOTNET", "5.2.1", FULL),
        ("\u2603", "\u2603", Quirk.NONE),
        ("", "", OLD),
    ],
)
def test_who_has_which(language: str, version: str, quirks: Quirk) -> None:
    assert quirks_of(language, version) == quirks


def test_every_quirk_has_a_row_and_every_row_says_why() -> None:
    assert {row.quirk for row in TABLE} == set(Quirk)


def consumer(language: str = "JAVA", version: str = "5.2.1") -> Session:
    """As it is known after its settings were answered."""
    asked = v2.Settings(client_type=v2.PUSH_CONSUMER)
    asked.subscription.group.name = "g"
    merged = client_settings.merge(asked, None, quirks_of(language, version), CONFIG)
    return Session(
        client_id=f"{language}-{version}",
        kind=ClientKind.PUSH_CONSUMER,
        group="g",
        topics=frozenset(),
        settings=merged,
        language=language,
        version=version,
        seen_ms=0,
    )


def ladder_ms(settings: v2.Settings) -> list[int]:
    return [step.ToMilliseconds() for step in settings.backoff_policy.customized_backoff.next]


def test_exponential_only_and_seconds_for_ms() -> None:
    policy = consumer("HTTP", "1.0.8").settings.backoff_policy
    assert policy.exponential_backoff.initial.seconds == 10_000
    assert policy.exponential_backoff.max.seconds == 7_200_000
    assert policy.max_attempts == 17


def test_ladder_one_ahead() -> None:
    assert tuple(ladder_ms(consumer("CPP").settings)) == (10_000, *LADDER_MS)
    assert tuple(ladder_ms(consumer().settings)) == LADDER_MS


GROUP = Group(id=1, name="g", fifo=True, max_attempts=5, backoff=None, created_ms=0)


@pytest.mark.parametrize(
    ("language", "told"), [("JAVA", 1), ("GO", 1), ("PYTHON", 0), ("CPP", 0), ("RUST", 1)]
)
async def test_no_pushed_settings(language: str, told: int) -> None:
    sessions = Sessions(ServerConfig())
    session = consumer(language)
    sessions.put(session)
    stream = sessions.open_stream()
    sessions.attach(session.client_id, stream)
    assert push_settings(sessions, "other", GROUP, CONFIG) == 0
    assert push_settings(sessions, "g", GROUP, CONFIG) == told
    assert push_settings(sessions, "g", GROUP, CONFIG) == 0  # it is known by now
    stream.end()
    commands = [TelemetryCommand.FromString(data) async for data in stream.commands()]
    assert [command.settings.subscription.fifo for command in commands] == [True] * told
    assert [command.settings.backoff_policy.max_attempts for command in commands] == [5] * told
    assert all(command.status.code == 20000 for command in commands)


async def test_settings_that_reach_nobody_are_pushed_again_when_they_change_again() -> None:
    sessions = Sessions(ServerConfig())
    session = consumer()
    sessions.put(session)
    assert push_settings(sessions, "g", GROUP, CONFIG) == 0
    sessions.attach(session.client_id, sessions.open_stream())
    assert push_settings(sessions, "g", GROUP, CONFIG) == 1


@pytest.mark.parametrize("language", ["PYTHON", "RUST"])
async def test_answers_no_questions(language: str) -> None:
    sessions = Sessions(ServerConfig())
    session = consumer(language)
    sessions.put(session)
    sessions.attach(session.client_id, sessions.open_stream())
    replies = Replies(sessions)
    with pytest.raises(NotFoundError, match=f"{language} clients never answer"):
        await replies.ask(session, replies.nonce(), TelemetryCommand())


@pytest.mark.parametrize(
    ("version", "error"),
    [
        ("5.0.3", IllegalPollingTimeError),
        ("5.0.2", BadRequestError),
        ("10.0.0", BadRequestError),  # compared as text
        ("", BadRequestError),
    ],
)
def test_old_polling_code(version: str, error: type[Exception]) -> None:
    config = ServerConfig()
    call = FakeCall(remaining_ms=1_000, metadata={"x-mq-client-version": version})
    with pytest.raises(error):
        polling_ms(Duration(seconds=10), Caller("c", call), Sessions(config), config, short=True)

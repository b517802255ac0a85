"""The story of a dead letter, word for word."""

import zlib
from datetime import UTC, datetime
from typing import Any

import pytest

from latermq_cli.dead.dead_story import Telling, tell
from latermq_cli.terminal.table import display_width
from latermq_proto.latermq.v1 import dead_letter_pb2 as pb

SENT_MS = round(datetime(2026, 5, 1, 7, 19, 31, 123_000, tzinfo=UTC).timestamp() * 1000)
TIMEOUT = {"failure_class": "TimeoutError", "failure_text": "the bank did not answer"}


def attempt(number: int, start_ms: int, ran_ms: int, **fields: Any) -> pb.Attempt:
    return pb.Attempt(
        attempt=number,
        started_at_ms=SENT_MS + start_ms,
        ended_at_ms=SENT_MS + start_ms + ran_ms,
        **{"client_id": "billing-7@host-1", "outcome": "nack", "life": 1, **fields},
    )


def letter(*attempts: pb.Attempt, **fields: Any) -> pb.DeadLetter:
    values = {
        "group": "billing",
        "queue_offset": 3,
        "message_id": "01AABBCCDDEEFF00112233445566778899",
        "origin_topic": "orders",
        "origin_queue_id": 2,
        "origin_offset": 118,
        "reason": "attempts_exhausted",
        "attempt_count": len(attempts),
        "max_attempts": len(attempts),
        "dead_at_ms": attempts[-1].ended_at_ms if attempts else SENT_MS,
        "signature": "8f3c0011aabbccdd",
        "body": b'{"order": 4711}',
        "body_size": 15,
        "born_at_ms": SENT_MS,
        "born_host": "10.0.0.7",
        "stored_at_ms": SENT_MS + 2,
        "state": pb.DEAD,
    }
    return pb.DeadLetter(attempts=attempts, **{**values, **fields})


def story(told: pb.DeadLetter, width: int = 100, **telling: Any) -> str:
    return "\n".join(tell(told, Telling(width=width, zone=UTC, **telling)))


def test_the_whole_story() -> None:
    told = letter(
        attempt(1, 7, 12, backoff_ms=1_000, **TIMEOUT),
        attempt(2, 1_050, 8, backoff_ms=5_000, **TIMEOUT),
        attempt(3, 13_058, 30_000, outcome="expired", client_id="billing-8@host-1"),
        tag="created",
        keys=["order-4711", "customer-12"],
        properties={"tenant": "north", "region": "eu"},
        **TIMEOUT,
    )
    assert story(told, alike_count=2) == (
        """\
Dead letter of group billing, number 3 in %DLQ%billing

  message     01AABBCCDDEEFF00112233445566778899
  from        topic orders, queue 2, offset 118
  sent        2026-05-01 07:19:31.123 UTC by 10.0.0.7
  tag         created
  keys        order-4711, customer-12
  properties  region = eu
              tenant = north
  body        {"order": 4711}  (15 bytes)

What happened, on 2026-05-01 (UTC)
  07:19:31.125  sent        to orders
  07:19:31.130  attempt 1   ran 12 ms  on billing-7@host-1
                failed: TimeoutError: the bank did not answer
                waited 1 s
  07:19:32.173  attempt 2   ran 8 ms   on billing-7@host-1
                failed: TimeoutError: the bank did not answer
                waited 5 s, then 7 s for a consumer to ask
  07:19:44.181  attempt 3   ran 30 s   on billing-8@host-1
                no answer: the lease ended before the consumer acknowledged or failed it
  07:20:14.181  dead        attempts used up

Why it died
  The group allows 3 attempts, and all were used up without success. The attempts ended differently:
  TimeoutError (2), lease ended (1).
  Signature 8f3c0011aabbccdd: 2 other dead letters of this group have it.

What you can do
  latermq dead redrive billing --offset 3                    try it again
  latermq dead redrive billing --signature 8f3c0011aabbccdd  and all alike
  latermq dead drop billing --offset 3                       give it up"""
    )


@pytest.mark.parametrize("width", [50, 60, 80])
def test_a_narrow_page_is_respected_but_for_commands(width: int) -> None:
    told = letter(
        attempt(1, 0, 12, failure_class="E", failure_text="注文 was not found " * 20),
        properties={"long": "value " * 40},
        body=b"word " * 100,
        body_size=500,
    )
    lines = story(told, width, alike_count=1).split("\n")
    wide = [line for line in lines if display_width(line) > width and "latermq dead" not in line]
    assert [line for line in wide if "%DLQ%" not in line] == []


def test_attempts_that_all_failed_alike_say_that_retrying_was_no_use() -> None:
    told = letter(attempt(1, 0, 1, **TIMEOUT), attempt(2, 10, 1, **TIMEOUT), **TIMEOUT)
    text = " ".join(story(told).split())
    assert "Every attempt failed the same way (TimeoutError); retrying did not help." in text


def test_a_policy_that_was_changed_on_the_way_is_told_as_of_the_death() -> None:
    told = letter(attempt(1, 0, 1, **TIMEOUT), attempt(2, 10, 1, **TIMEOUT), **TIMEOUT)
    told.max_attempts, told.attempt_count, told.reason = 1, 2, "exhausted"
    text = " ".join(story(told).split())
    assert "The group allowed 1 when it died; it had had 2 attempts without success." in text


def test_silent_attempts_point_to_the_consumer() -> None:
    told = letter(attempt(1, 0, 1_000, outcome="expired"), signature="")
    text = story(told)
    assert "hung, crashed, or needs a longer invisible duration" in text
    assert "Signature" not in text


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("rejected", "The application refused it at attempt 1 (CardError: expired)."),
        ("forwarded", "The consumer sent it to the dead letters itself at attempt 1"),
    ],
)
def test_other_reasons(reason: str, sentence: str) -> None:
    failure = {"failure_class": "CardError", "failure_text": "expired"}
    assert sentence in story(letter(attempt(1, 0, 1, **failure), reason=reason, **failure))


def test_stacks_are_shown_once_each() -> None:
    stack = 'Traceback:\n  File "pay.py", line 1\nTimeoutError'
    told = letter(
        attempt(1, 0, 1, stack=stack, **TIMEOUT), attempt(2, 10, 1, stack=stack, **TIMEOUT)
    )
    text = story(told, stacks=True)
    assert text.count('File "pay.py"') == 1
    assert "same stack as attempt 1" in text
    assert "--stack" not in text
    assert "latermq dead show billing --offset 3 --stack" in story(told)


def test_a_redrive_begins_another_life() -> None:
    told = letter(
        attempt(1, 0, 1, **TIMEOUT),
        attempt(1, 60_000, 1, life=2, **TIMEOUT),
        redrive_count=1,
        redriven_at_ms=SENT_MS + 50_000,
        attempt_count=1,
        max_attempts=1,
    )
    text = story(told)
    assert "07:20:21.123  redriven    back to billing; attempts count from 1 again" in text
    assert "it was used up since its last redrive without success" in text


def test_a_letter_that_is_no_longer_dead_says_so_and_offers_nothing() -> None:
    told = letter(attempt(1, 0, 1), state=pb.REDRIVEN, redriven_at_ms=SENT_MS + 60_000)
    text = story(told)
    assert "07:20:31.123  redriven    sent back by an operator; no longer dead" in text
    assert "What you can do" not in text
    assert "dropped, for good" in story(letter(attempt(1, 0, 1), state=pb.DROPPED))


def test_attempts_that_were_not_kept_are_counted() -> None:
    told = letter(attempt(101, 0, 1), attempt_count=101, max_attempts=101)
    assert "… 100 earlier attempts not kept" in story(told)


def test_another_day_shows_its_date() -> None:
    day_ms = 86_400_000
    told = letter(attempt(1, 0, 1, backoff_ms=day_ms), attempt(2, day_ms + 1, 1))
    assert "  2026-05-02 07:19:31.124  attempt 2" in story(told)


def test_bodies() -> None:
    assert "body        3 bytes, not text: 00 01 ff" in story(letter(body=b"\0\1\xff", body_size=3))
    many = letter(body=b"line\n" * 20, body_size=100)
    assert "… --body shows the rest" in story(many)
    assert story(many, whole_body=True).count("line") == 20
    assert "\x1b" not in story(letter(body=b"\x1b[2J", body_size=4))
    zipped = zlib.compress(b"hello")
    assert "hello" in story(letter(body=zipped, body_size=13, body_encoding="gzip"))


def test_a_letter_a_producer_made_has_no_life() -> None:
    told = pb.DeadLetter(group="billing", message_id="m", origin_queue_id=-1, origin_offset=-1)
    assert "Dead letter of group billing" in story(told)


def test_what_a_producer_sent_to_the_dead_letters() -> None:
    told = letter(
        origin_topic="", origin_queue_id=-1, origin_offset=-1, reason="", max_attempts=0,
        signature="",
    )  # fmt: skip
    text = story(told)
    assert "  from        straight to the dead letters\n" in text
    assert "  07:19:31.125  sent        to %DLQ%billing\n\nWhy it died\n" in text
    assert "It did not: a producer sent it straight to the dead letters" in text
    assert "latermq dead redrive billing --offset 3 --to-topic TOPIC  send it to a topic" in text

"""latermq.v1 DeadLetters (dead_letter.proto)."""

from collections.abc import Iterator
from itertools import chain, count, pairwise, repeat
from typing import Any

import pytest

from latermq_broker.background.fair_share import SLICE_NS
from latermq_broker.engine.state.model import Failure
from latermq_broker.services.call.paging import page_token
from latermq_broker.services.v1 import v1_dead_letters
from latermq_broker.services.v1.v1_dead_letters import (
    LOOK_MS_MAX,
    PAGE_BYTES_MAX,
    SLICE_LETTERS_MAX,
)
from latermq_proto.apache.rocketmq.v2.definition_pb2 import Code
from latermq_proto.latermq.v1 import dead_letter_pb2 as pb
from support.fake_call import FakeCall
from support.v1_rig import V1Rig

DEAD = "/latermq.v1.DeadLetters"
TIMEOUT = Failure("TimeoutError", "no answer in 30 s", "00ff", "Traceback: no answer")
BAD_CARD = Failure("CardError", "card 4711 expired", "", "")


@pytest.fixture
def rig() -> Iterator[V1Rig]:
    rig = V1Rig()
    rig.make_group()
    yield rig
    rig.close()


def listed(rig: V1Rig, filter: dict[str, Any] | None = None, **fields: Any) -> Any:
    request = pb.ListDeadLettersRequest(
        group=fields.pop("group", "billing"), filter=pb.DeadLetterFilter(**filter or {}), **fields
    )
    return rig.call(f"{DEAD}/ListDeadLetters", request, pb.ListDeadLettersResponse)


def ids(rig: V1Rig, filter: dict[str, Any] | None = None, **fields: Any) -> list[str]:
    page = listed(rig, filter, **fields)
    assert page.status.code == Code.OK, page.status
    return [letter.message_id for letter in page.letters]


def get(rig: V1Rig, **fields: Any) -> Any:
    request = pb.GetDeadLetterRequest(group=fields.pop("group", "billing"), **fields)
    return rig.call(f"{DEAD}/GetDeadLetter", request, pb.GetDeadLetterResponse)


def redrive(rig: V1Rig, filter: dict[str, Any] | None = None, **fields: Any) -> list[Any]:
    request = pb.RedriveDeadLettersRequest(
        group=fields.pop("group", "billing"), filter=pb.DeadLetterFilter(**filter or {}), **fields
    )
    return rig.stream(f"{DEAD}/RedriveDeadLetters", request, pb.DeadLetterProgress)


def drop(rig: V1Rig, filter: dict[str, Any] | None = None, **fields: Any) -> list[Any]:
    request = pb.DropDeadLettersRequest(
        group=fields.pop("group", "billing"), filter=pb.DeadLetterFilter(**filter or {}), **fields
    )
    return rig.stream(f"{DEAD}/DropDeadLetters", request, pb.DeadLetterProgress)


def counts(progress: Any) -> tuple[int, int, int, bool]:
    return (
        progress.scanned_count,
        progress.changed_count,
        progress.failed_count,
        progress.done,
    )


def test_a_letter_tells_its_whole_life(rig: V1Rig) -> None:
    started_ms = rig.now_ms
    rig.die("m-1", TIMEOUT, body=b"\x00\xff", tag="created")
    letter = get(rig, message_id="m-1").letter
    assert (letter.group, letter.queue_offset, letter.origin_topic) == ("billing", 0, "orders")
    assert (letter.origin_queue_id, letter.origin_offset) == (0, 0)
    assert (letter.reason, letter.attempt_count, letter.max_attempts) == (
        "attempts_exhausted",
        3,
        3,
    )
    assert (letter.tag, letter.body, letter.body_size) == ("created", b"\x00\xff", 2)
    assert (letter.born_at_ms, letter.stored_at_ms) == (started_ms - 5, started_ms)
    assert letter.dead_at_ms == rig.now_ms
    assert letter.state == pb.DEAD
    assert [attempt.attempt for attempt in letter.attempts] == [1, 2, 3]
    assert [attempt.started_at_ms for attempt in letter.attempts] == [
        started_ms, started_ms + 10, started_ms + 20
    ]  # fmt: skip
    for attempt in letter.attempts:
        assert attempt.ended_at_ms - attempt.started_at_ms == 10
        assert (attempt.client_id, attempt.outcome, attempt.life) == ("client-1", "nack", 1)
        assert (attempt.failure_class, attempt.failure_text) == TIMEOUT[:2]
        assert (attempt.stack_hash, attempt.stack) == TIMEOUT[2:4]
    assert (letter.failure_class, letter.failure_text) == TIMEOUT[:2]
    assert len(letter.signature) == 16


def test_lists_leave_stacks_out_and_bodies_unless_asked(rig: V1Rig) -> None:
    rig.die("m-1", TIMEOUT, body=b"body")
    (letter,) = listed(rig).letters
    assert (letter.body, letter.body_size) == (b"", 4)
    assert not any(attempt.stack for attempt in letter.attempts)
    assert listed(rig, include_body=True).letters[0].body == b"body"


def test_filters(rig: V1Rig) -> None:
    rig.die("m-1", TIMEOUT)
    rig.advance(1000)
    rig.die("m-2", BAD_CARD)
    rig.die("m-3", TIMEOUT, topic="mails")
    first, second, third = listed(rig).letters
    assert first.signature == third.signature != second.signature
    assert ids(rig, {"signature": first.signature}) == ["m-1", "m-3"]
    assert ids(rig, {"failure_class": "CardError"}) == ["m-2"]
    assert ids(rig, {"origin_topic": "mails"}) == ["m-3"]
    assert ids(rig, {"reason": "rejected"}) == []
    assert ids(rig, {"message_ids": ["m-3", "m-1"]}) == ["m-1", "m-3"]
    assert ids(rig, {"queue_offsets": [1]}) == ["m-2"]
    assert ids(rig, {"dead_after_ms": second.dead_at_ms}) == ["m-2", "m-3"]
    assert ids(rig, {"dead_before_ms": second.dead_at_ms}) == ["m-1"]
    assert ids(rig, newest_first=True) == ["m-3", "m-2", "m-1"]


def test_states(rig: V1Rig) -> None:
    for number in range(3):
        rig.die(f"m-{number}")
    drop(rig, {"message_ids": ["m-0"]})
    redrive(rig, {"message_ids": ["m-1"]})
    assert ids(rig) == ids(rig, {"state": pb.DEAD}) == ["m-2"]
    assert ids(rig, {"state": pb.DROPPED}) == ["m-0"]
    assert ids(rig, {"state": pb.REDRIVEN}) == ["m-1"]
    assert ids(rig, {"state": pb.ANY}) == ["m-0", "m-1", "m-2"]
    assert listed(rig, {"state": 9}).status.code == Code.BAD_REQUEST


@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_follow_each_other(rig: V1Rig, newest_first: bool) -> None:
    for number in range(5):
        rig.die(f"m-{number}")
    seen: list[str] = []
    token = ""
    while True:
        page = listed(rig, page_size=2, page_token=token, newest_first=newest_first)
        seen += [letter.message_id for letter in page.letters]
        assert len(page.letters) <= 2
        token = page.next_page_token
        if not token:
            break
    wanted = [f"m-{number}" for number in range(5)]
    assert seen == (wanted[::-1] if newest_first else wanted)


def test_a_page_ends_early_when_its_letters_are_large(rig: V1Rig) -> None:
    body = bytes(60_000)
    count = PAGE_BYTES_MAX // len(body) + 3
    rig.engine.groups.alter(
        "billing", max_attempts=1, backoff=None, clear_backoff=False, now_ms=rig.now_ms
    )
    for number in range(count):
        rig.die(f"m-{number}", TIMEOUT, body=body)
    page = listed(rig, include_body=True)
    assert 1 < len(page.letters) < count
    rest = listed(rig, include_body=True, page_token=page.next_page_token)
    assert len(page.letters) + len(rest.letters) == count


def test_unknown_groups_and_letters_say_so(rig: V1Rig) -> None:
    assert ids(rig) == []  # nothing died yet: known, and empty
    assert listed(rig, group="nobody").status.code == Code.CONSUMER_GROUP_NOT_FOUND
    assert get(rig, group="nobody", message_id="x").status.code == Code.CONSUMER_GROUP_NOT_FOUND
    assert get(rig, message_id="x").status.code == Code.MESSAGE_NOT_FOUND
    assert get(rig, queue_offset=0).status.code == Code.MESSAGE_NOT_FOUND
    (refused,) = redrive(rig, group="nobody")
    assert refused.status.code == Code.CONSUMER_GROUP_NOT_FOUND
    (refused,) = drop(rig, group="nobody")
    assert refused.status.code == Code.CONSUMER_GROUP_NOT_FOUND
    for token in ("?", page_token("²"), page_token("9" * 30)):
        assert listed(rig, page_token=token).status.code == Code.BAD_REQUEST


def test_the_newest_letter_of_an_id_is_shown(rig: V1Rig) -> None:
    rig.die("m-1", TIMEOUT)
    redrive(rig)
    for _ in range(3):
        rig.fail(BAD_CARD)
    letter = get(rig, message_id="m-1").letter
    assert (letter.queue_offset, letter.redrive_count) == (1, 1)
    assert letter.redriven_at_ms > 0
    assert [(attempt.life, attempt.attempt) for attempt in letter.attempts] == [
        (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)
    ]  # fmt: skip
    assert get(rig, queue_offset=0).letter.state == pb.REDRIVEN


def test_a_redrive_goes_to_that_one_group_from_attempt_one(rig: V1Rig) -> None:
    rig.die("m-1", TIMEOUT)
    (last,) = redrive(rig)
    assert counts(last) == (1, 1, 0, True)
    (delivered,) = rig.receive()
    assert delivered.attempt == 1
    assert len(rig.receive("another")) == 1  # the message of its own, from the topic
    assert rig.receive("another") == []
    assert rig.receive("reader", topic="%DLQ%billing") == []


def test_a_redrive_to_a_topic_reaches_every_group_of_it(rig: V1Rig) -> None:
    rig.die("m-1", TIMEOUT)
    (refused,) = redrive(rig, to_topic="again")
    assert (refused.status.code, refused.done) == (Code.TOPIC_NOT_FOUND, True)
    rig.engine.ensure_topic("again", rig.now_ms)
    (last,) = redrive(rig, to_topic="again")
    assert counts(last) == (1, 1, 0, True)
    assert len(rig.receive("one", topic="again")) == len(rig.receive("two", topic="again")) == 1
    assert ids(rig) == []


def test_a_dry_run_only_counts(rig: V1Rig) -> None:
    rig.die("m-1")
    rig.die("m-2")
    assert counts(redrive(rig, dry_run=True)[-1]) == (2, 2, 0, True)
    assert counts(drop(rig, dry_run=True)[-1]) == (2, 2, 0, True)
    assert ids(rig) == ["m-1", "m-2"]


def test_max_count_bounds_it(rig: V1Rig) -> None:
    for number in range(4):
        rig.die(f"m-{number}")
    assert counts(redrive(rig, max_count=1)[-1])[1:] == (1, 0, True)
    assert counts(drop(rig, max_count=2)[-1])[1:] == (2, 0, True)
    assert ids(rig) == ["m-3"]


def test_a_letter_that_cannot_go_is_counted_and_stays(rig: V1Rig) -> None:
    rig.die("m-1", topic="gone")
    rig.die("m-2")
    rig.engine.topics.delete("gone", rig.now_ms)
    (last,) = redrive(rig)
    assert counts(last) == (2, 1, 1, True)
    assert "gone" in last.last_error
    assert ids(rig) == ["m-1"]


def test_a_full_store_ends_the_job_and_no_letter_is_blamed(rig: V1Rig) -> None:
    for number in range(40):
        rig.die(f"m-{number}")
    rig.fill()
    last = redrive(rig)[-1]
    assert (last.status.code, last.status.message[:9]) == (Code.INTERNAL_SERVER_ERROR, "disk full")
    assert (last.failed_count, last.last_error) == (0, "")
    assert 0 < len(ids(rig)) <= 40


def test_many_letters_go_in_slices_with_progress(rig: V1Rig) -> None:
    rig.engine.groups.alter(
        "billing", max_attempts=1, backoff=None, clear_backoff=False, now_ms=rig.now_ms
    )
    letters = 20 * SLICE_LETTERS_MAX + 7
    for number in range(letters):
        rig.die(f"m-{number}")
    waits = rig.committer.waits
    told = redrive(rig)
    assert rig.committer.waits - waits >= 21  # once per slice
    assert [progress.done for progress in told] == [False, True]
    assert 1_000 <= told[0].scanned_count < 1_000 + SLICE_LETTERS_MAX
    assert counts(told[-1]) == (letters, letters, 0, True)
    assert ids(rig) == []


def test_what_dies_during_the_job_is_not_part_of_it(rig: V1Rig) -> None:
    """Else a message that dies again at once would be redriven for ever."""
    rig.die("m-1")
    written = rig.committer.written

    def written_and_dead_again() -> Any:
        rig.committer.written = written  # type: ignore[method-assign]
        for _ in range(3):
            rig.fail(TIMEOUT)
        return written()

    rig.committer.written = written_and_dead_again  # type: ignore[method-assign]
    assert counts(redrive(rig)[-1]) == (1, 1, 0, True)
    assert ids(rig) == ["m-1"]


def times_of_changes(rig: V1Rig, passing_ms: Iterator[int]) -> list[int]:
    """Have so much time pass at each look at the clock; when letters are changed is noted."""
    changed_ms: list[int] = []
    written = rig.committer.written

    def now_ms() -> int:
        rig.now_ms += next(passing_ms)
        return rig.now_ms

    def noted() -> Any:
        changed_ms.append(rig.now_ms)
        return written()

    rig.committer.now_ms = now_ms  # type: ignore[method-assign]
    rig.committer.written = noted  # type: ignore[method-assign]
    return changed_ms


def test_a_rate_is_kept_and_waiting_tells_progress(rig: V1Rig) -> None:
    for number in range(4):
        rig.die(f"m-{number}")
    redriven_ms = times_of_changes(rig, repeat(100))
    told = redrive(rig, rate_per_second=1)
    assert counts(told[-1]) == (4, 4, 0, True)
    gaps_ms = [after - before for before, after in pairwise(redriven_ms)]
    assert len(gaps_ms) == 3
    assert all(900 <= gap_ms <= 1_300 for gap_ms in gaps_ms)
    assert len(told) >= 4


def test_what_a_rate_allowed_meanwhile_is_not_made_up_for(rig: V1Rig) -> None:
    """A job that looks for long for its letters does not send them all at once."""
    for number in range(SLICE_LETTERS_MAX + 1):
        rig.die(f"other-{number}")
    wanted = [f"m-{number}" for number in range(4)]
    for name in wanted:
        rig.die(name)
    slow = repeat(5_000, 3)  # to the letters that are wanted
    redriven_ms = times_of_changes(rig, chain(slow, repeat(100)))
    slices = count(step=SLICE_NS)
    rig.background.now_ns = lambda: next(slices)  # one step each
    told = redrive(rig, {"message_ids": wanted}, rate_per_second=1)
    assert told[-1].changed_count == 4
    assert len(redriven_ms) == 4
    assert all(after - before >= 700 for before, after in pairwise(redriven_ms))


def test_a_caller_who_left_stops_the_job(rig: V1Rig) -> None:
    rig.die("m-1")
    call = FakeCall()
    call.cancel()
    request = pb.RedriveDeadLettersRequest(group="billing")
    assert rig.stream(f"{DEAD}/RedriveDeadLetters", request, pb.DeadLetterProgress, call) == []
    assert ids(rig) == ["m-1"]


@pytest.mark.parametrize("fields", [{"max_count": -1}, {"rate_per_second": -1}])
def test_bounds_are_not_negative(rig: V1Rig, fields: dict[str, Any]) -> None:
    (refused,) = redrive(rig, **fields)
    assert refused.status.code == Code.BAD_REQUEST


def test_only_the_dead_can_change(rig: V1Rig) -> None:
    rig.die("m-1")
    for state in (pb.REDRIVEN, pb.DROPPED, pb.ANY):
        (refused,) = redrive(rig, {"state": state})
        assert refused.status.code == Code.BAD_REQUEST


def test_letters_of_a_deleted_group_can_go_to_a_topic_only(rig: V1Rig) -> None:
    rig.die("m-1")
    rig.engine.groups.delete("billing", rig.now_ms)
    (refused,) = redrive(rig)
    assert refused.status.code == Code.CONSUMER_GROUP_NOT_FOUND
    rig.engine.ensure_topic("again", rig.now_ms)
    assert counts(redrive(rig, to_topic="again")[-1])[1:] == (1, 0, True)


def test_a_page_that_is_hard_to_find_ends_after_a_moment(
    rig: V1Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(SLICE_LETTERS_MAX * 2 + 1):
        rig.die(f"m-{number}", BAD_CARD if number else TIMEOUT)
    asked: list[int] = []

    def a_look_takes_long() -> int:
        asked.append(rig.now_ms)
        return rig.now_ms + len(asked) * LOOK_MS_MAX

    monkeypatch.setattr(rig.committer, "now_ms", a_look_takes_long)
    monkeypatch.setattr(v1_dead_letters, "LOOK_NS_MIN", 0)
    wanted = {"failure_class": "TimeoutError"}
    first = listed(rig, wanted, newest_first=True)
    assert (list(first.letters), bool(first.next_page_token)) == ([], True)
    found, token, pages = [], first.next_page_token, 1
    while token:
        page = listed(rig, wanted, newest_first=True, page_token=token)
        found += [letter.message_id for letter in page.letters]
        token, pages = page.next_page_token, pages + 1
    assert found == ["m-0"]
    assert pages > 2

"""Marks in Redis, whose answers are lost: what was asked for again is not another worker's."""

import logging
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from latermq.idempotency import InHandError, RedisDone
from latermq.idempotency._redis import _BEGIN, _GIVE_UP


class LossyRedis:
    """Marks in a dict. `lost` answers do not arrive; the client asks again, if it `retries`."""

    def __init__(self, *, retries: bool = True) -> None:
        self.marks: dict[str, str] = {}
        self.lost = 0
        self.retries = retries

    def execute_command(self) -> None:
        """It is no coroutine function, so this is a client for threads."""

    def eval(self, script: str, _: int, name: str, token: str, *__: Any) -> Any:
        def work() -> Any:
            there = self.marks.get(name)
            if script == _GIVE_UP:
                return self.marks.pop(name) and 1 if there == token else 0
            assert script == _BEGIN
            if there not in (None, token):
                return [there, 1_000]
            self.marks[name] = token
            return ["", 0]

        return self._answered(work)

    def set(self, name: str, value: str, **_: Any) -> Any:
        def work() -> Any:
            before, self.marks[name] = self.marks.get(name), value
            return before

        return self._answered(work)

    def _answered(self, work: Any) -> Any:
        answer = work()
        while self.lost:
            self.lost -= 1
            if not self.retries:
                raise ConnectionError("no answer")
            answer = work()
        return answer


@pytest.mark.parametrize("at", ["begin", "end"])
def test_an_answer_that_was_asked_for_again_is_our_own(
    at: str, caplog: pytest.LogCaptureFixture
) -> None:
    redis = LossyRedis()
    done = RedisDone(redis, "billing")  # type: ignore[arg-type]
    redis.lost = at == "begin"
    with done.once("a") as first:
        assert first
        redis.lost = at == "end"
    with done.once("a") as first:
        assert not first
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_work_that_outlasts_its_lease_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr("latermq.idempotency._redis.monotonic", lambda: now_s)
    redis = LossyRedis()
    with RedisDone(redis, "billing").once("a"):  # type: ignore[arg-type]
        now_s += 61
        redis.marks["latermq:done:billing:a"] = "done"  # another's, when the lease was over
    assert "may have been done by another worker" in caplog.text


def test_a_begin_without_an_answer_leaves_no_mark() -> None:
    redis = LossyRedis(retries=False)
    done = RedisDone(redis, "billing")  # type: ignore[arg-type]
    redis.lost = 1
    with pytest.raises(ConnectionError), done.once("a"):
        pass
    with done.once("a") as first:
        assert first


NAMES = st.text(alphabet=":%3Aa", min_size=1, max_size=4)
TRIPLES = st.tuples(NAMES, NAMES, NAMES)


@given(st.lists(TRIPLES, min_size=2, max_size=8, unique=True))
@example([("a:b", "c", "d"), ("a", "b:c", "d"), ("a", "b", "c:d"), ("a", "b%3Ac", "d")])
@example([("latermq:done", "billing", "5"), ("latermq", "done", "billing:5")])
def test_names_that_are_joined_are_told_apart(triples: list[tuple[str, str, str]]) -> None:
    redis = LossyRedis()
    for prefix, group, key in triples:
        with RedisDone(redis, group, prefix=prefix).once(key) as first:  # type: ignore[arg-type]
            assert first
    assert len(redis.marks) == len(triples)


def test_anothers_mark_is_in_hand() -> None:
    redis = LossyRedis()
    one, two = (RedisDone(redis, "billing") for _ in range(2))  # type: ignore[arg-type]
    with one.once("a"), pytest.raises(InHandError), two.once("a"):
        pass

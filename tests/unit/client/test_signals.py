"""Who hears a signal: one or several that end, and what is put back afterwards."""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import latermq
from latermq._consuming.signals import asked_if_nobody_hears, asked_to_end

TERM, INT = signal.SIGTERM, signal.SIGINT


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (TERM, INT)}
    signal.signal(TERM, signal.SIG_DFL)
    signal.signal(INT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_asks_and_the_second_would_end() -> None:
    told: list[str] = []
    with asked_to_end(lambda: told.append("end")):
        signal.raise_signal(TERM)
        assert told == ["end"]
        assert (signal.getsignal(TERM), signal.getsignal(INT)) == (signal.SIG_DFL, signal.SIG_DFL)
    assert signal.getsignal(INT) is signal.default_int_handler


@pytest.mark.parametrize("number", [TERM, INT])
def test_all_that_run_are_asked(number: signal.Signals) -> None:
    told: list[str] = []
    with (
        asked_if_nobody_hears(lambda: told.append("one")),
        asked_if_nobody_hears(lambda: told.append("two")),
    ):
        signal.raise_signal(number)
    assert sorted(told) == ["one", "two"]
    assert signal.getsignal(TERM) is signal.SIG_DFL
    assert signal.getsignal(INT) is signal.default_int_handler


def test_one_that_ended_before_those_begun_after_it_hears_nothing() -> None:
    told: list[str] = []
    first, second = ExitStack(), ExitStack()
    first.enter_context(asked_if_nobody_hears(lambda: told.append("one")))
    second.enter_context(asked_if_nobody_hears(lambda: told.append("two")))
    first.close()
    signal.raise_signal(TERM)
    assert told == ["two"]
    second.close()
    assert signal.getsignal(TERM) is signal.SIG_DFL
    assert signal.getsignal(INT) is signal.default_int_handler


def test_a_handler_of_the_program_s_own_stays() -> None:
    told: list[str] = []
    signal.signal(TERM, lambda *_: told.append("program"))
    with asked_if_nobody_hears(lambda: told.append("ours")):
        signal.raise_signal(TERM)
    assert told == ["program"]


def test_a_handler_that_the_program_sets_meanwhile_stays() -> None:
    told: list[str] = []

    def own(*_: object) -> None:
        told.append("program")

    with asked_if_nobody_hears(lambda: told.append("ours")):
        signal.signal(TERM, own)
        signal.raise_signal(INT)
        assert signal.getsignal(TERM) is own
    assert signal.getsignal(TERM) is own
    assert signal.getsignal(INT) is signal.default_int_handler
    assert told == ["ours"]


def test_one_that_is_put_back_when_it_is_over_passes_the_signal_on() -> None:
    """A server in the same program saves it with its own handlers, and ends later."""
    told: list[str] = []
    signal.signal(TERM, lambda *_: told.append("program"))
    with asked_to_end(lambda: told.append("ours")):
        saved = signal.signal(TERM, lambda *_: told.append("server"))
    assert signal.getsignal(TERM) is not saved
    signal.signal(TERM, saved)
    signal.raise_signal(TERM)
    signal.raise_signal(TERM)
    assert told == ["program", "program"]


def test_in_another_thread_nothing_would_be_heard() -> None:
    refused: list[str] = []

    def run() -> None:
        try:
            latermq.App().run()
        except RuntimeError as error:
            refused.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "only the main thread gets" in refused[0]

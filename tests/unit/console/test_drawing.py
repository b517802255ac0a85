"""Words, bodies, charts and the story of a letter: what a page shows, without a page."""

import gzip
import json

import pytest
from markupsafe import Markup

from latermq_console.drawing import bodies, charts, story, words
from latermq_console.drawing.links import query, segment
from latermq_proto.latermq.v1 import dead_letter_pb2 as dead_pb2
from latermq_text.durations import format_duration

T: int = 1_790_000_000_000


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (999, "999 ms"), (12_340, "12.3 s"), (59_990, "1m"), (61_000, "1m 1s"),
     (3_600_000, "1h"), (93_600_000, "1d 2h"), (-2_000, "-2 s")],
)  # fmt: skip
def test_durations_have_two_units_at_most(ms: int, text: str) -> None:
    assert format_duration(ms) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (950, "950"), (1_000, "1k"), (12_345, "12.3k"), (123_456, "123k"), (4e6, "4M")],
)
def test_large_numbers_are_short(value: float, text: str) -> None:
    assert words.short(value) == text


def test_rates_and_sizes() -> None:
    assert [words.rate(each) for each in (0, 0.01, 0.4, 12, 3_100)] == [
        "0", "<0.1", "0.4", "12", "3.1k",
    ]  # fmt: skip
    assert [words.size(each) for each in (0, 1_023, 1_536, 5 << 30)] == [
        "0 B", "1023 B", "1.5 KiB", "5.0 GiB",
    ]  # fmt: skip


def test_instants_are_elements_with_utc_in_them() -> None:
    assert words.when(T) == (
        '<time datetime="2026-09-21T14:13:20.000+00:00" data-form="s" '
        'title="2026-09-21 14:13:20.000 UTC">2026-09-21 14:13:20 UTC</time>'
    )
    assert ">3m 20s ago<" in words.ago(T, T + 200_000)
    assert ">in 5 s<" in words.ago(T + 5_000, T)
    assert "never" in words.ago(0, T)
    assert "-" in words.when(1 << 62), "a time that no calendar knows"


def test_text_of_strangers_is_text() -> None:
    assert words.plain("a\u202eb\x1b[1m") == r"a\u202eb\u001b[1m"
    assert words.breakable("<i>.x") == Markup("&lt;i&gt;.<wbr>x")
    assert words.lines_of("a\tb\r\nc\x07") == "a    b\nc\\u0007"


def test_links() -> None:
    assert segment("%DLQ%a/b") == "%25DLQ%25a%2Fb"
    assert query({"q": "a b", "none": ""}, after="x=") == "?q=a+b&after=x%3D"
    assert query() == ""


def test_a_body_is_json_text_or_bytes() -> None:
    assert bodies.body_of(b'{"a":[1]}', "").text == '{\n  "a": [\n    1\n  ]\n}'
    assert bodies.body_of(b"{not json", "").kind == "text"
    assert bodies.body_of(b"", "").kind == "empty"
    packed = gzip.compress(json.dumps({"é": 1}).encode())
    assert bodies.body_of(packed, "gzip").text == '{\n  "é": 1\n}'
    assert bodies.body_of(b"no gzip", "gzip").text == "no gzip"
    shown = bodies.body_of(bytes(range(130, 148)) + b"AB", "")
    assert shown.kind == "hex"
    assert shown.text.splitlines() == [
        "000000  82 83 84 85 86 87 88 89  8a 8b 8c 8d 8e 8f 90 91  ················",
        "000010  92 93 41 42                                       ··AB",
    ]


def test_a_body_is_bounded() -> None:
    long = bodies.body_of(b"x" * (bodies.SHOWN_BYTES_MAX + 1), "")
    assert (len(long.text), long.cut) == (bodies.SHOWN_BYTES_MAX, True)
    bomb = gzip.compress(b"y" * (4 << 20))
    assert bodies.body_of(bomb, "gzip").cut
    deep = b"[" * 50_000 + b"]" * 50_000
    assert bodies.body_of(deep[: bodies.SHOWN_BYTES_MAX], "").kind == "text"


def test_what_is_shown_of_a_body_is_bounded_whatever_it_is() -> None:
    most = bodies.SHOWN_BYTES_MAX
    nested = b"[" + b",".join([b"[" * 400 + b"]" * 400] * 80) + b"]"
    for body in (nested, b"\x01" * most, b"\n" * most, b'"' * (most + 1), b"\xc3\xa9" * most,
                 b"[" + b"1," * 30_000 + b"1]", b"a\t" * most):  # fmt: skip
        shown = bodies.body_of(body, "")
        assert shown.cut
        assert len(shown.text) <= most
        assert shown.text.count("\n") <= bodies.LINES_SHOWN_MAX
    assert bodies.body_of(b"\xc3\xa9" * 9, "", 5).text == "éé", "no half of a character"
    packed = bodies.body_of(gzip.compress(bytes(100 << 20), 1), "gzip")
    assert (packed.kind, packed.cut, packed.damage) == ("text", True, "")
    assert len(packed.text) <= most


def test_a_text_that_is_cut_says_so() -> None:
    assert words.cut_short("a\nb", 10, 10) == "a\nb"
    assert words.cut_short("a\nb\nc", 10, 2) == "a\nb\n… cut: it has 5 characters"
    assert words.cut_short("\x01" * 9, 13, 2) == "\\u0001\\u0001\\\n… cut: it has 9 characters"
    assert words.beginning_of("", 10, 10) == ("", False)


def test_stacks_and_properties_of_a_letter_are_bounded() -> None:
    attempts = [attempt(number, number * 1_000, stack=f"{number}\n" * 30_000)
                for number in range(1, 65)]  # fmt: skip
    told = story.events(letter(*attempts))
    assert sum(len(each.stack) for each in told) <= story.STACKS_CHARACTERS_MAX + 64 * 100
    assert "… cut: it has" in told[-2].stack
    many = bodies.properties_of({f"p{number:04}": "v" * 9_000 for number in range(300)})
    assert len(many) == bodies.PROPERTIES_SHOWN_MAX + 1
    assert (many[-1].value, len(many[0].value) < 4_200) == ("100 more", True)


def test_properties_that_tell_of_secrets_are_masked() -> None:
    shown = bodies.properties_of({"b": "1", "Auth_Token": "x", "password": "y", "passenger": "z"})
    assert [(each.name, each.value) for each in shown] == [
        ("Auth_Token", bodies.MASK), ("b", "1"), ("passenger", "z"), ("password", bodies.MASK),
    ]  # fmt: skip


def test_charts() -> None:
    line, area = charts.paths([0, 5, 10], 100, 24)
    assert line == "M0.0 22.0 L50.0 12.0 L100.0 2.0"
    assert area == f"{line} L100.0 24 L0.0 24 Z"
    assert charts.paths([1], 100, 24) == ("", "")
    assert charts.paths([1, None, None], 100, 24) == ("", "")


def test_a_line_has_gaps_where_nothing_is_known() -> None:
    line, area = charts.paths([0, 10, None, None, 10], 100, 24)
    assert line == "M0.0 22.0 L25.0 2.0 M100.0 2.0 L101.0 2.0"
    assert area.count("Z") == 2
    assert charts.paths([None, 0, 0], 100, 24)[0] == "M50.0 22.0 L100.0 22.0"
    assert "<svg" not in charts.spark([1], "one point")
    assert 'aria-label="&lt;b&gt;"' in charts.spark([1, 2], "<b>")
    assert [bar.high for bar in charts.bars([0, 1, 1_000], ["", "", ""], 90, 30)] == [0, 2, 30]
    assert charts.buckets([-1, 0, 5, 9, 10], 0, 10, 2) == [1, 2]
    (short,) = charts.spans([(99, 99, "nack", "")], 0, 100, 1_000)
    assert (short.x, short.wide) == (990, 3)


def letter(*attempts: dead_pb2.Attempt, **fields: object) -> dead_pb2.DeadLetter:
    made = dead_pb2.DeadLetter(
        group="billing", origin_topic="orders", reason="attempts_exhausted", max_attempts=2,
        attempt_count=len(attempts), stored_at_ms=T, dead_at_ms=T + 60_000, attempts=attempts,
        state=dead_pb2.DEAD,
    )  # fmt: skip
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def attempt(number: int, at_ms: int, **fields: object) -> dead_pb2.Attempt:
    made = dead_pb2.Attempt(
        attempt=number, life=1, started_at_ms=T + at_ms, ended_at_ms=T + at_ms + 500,
        outcome="nack", failure_class="ValueError", failure_text="no", stack="at x",
    )  # fmt: skip
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_a_life_is_told_in_order() -> None:
    told_life = story.events(
        letter(attempt(1, 5_000, backoff_ms=10_000), attempt(2, 20_000, stack="at x"))
    )
    assert [event.kind for event in told_life] == [
        "sent", "wait", "attempt", "wait", "attempt", "dead",
    ]  # fmt: skip
    assert told_life[1].title == "waited 5 s for its first delivery"
    assert told_life[3].title.startswith("waited 10 s as the group's backoff says, then 4.5 s")
    assert (told_life[2].stack, told_life[4].stack, told_life[4].stack_as) == ("at x", "", 1)


def test_a_redrive_begins_a_life() -> None:
    one = letter(
        attempt(1, 0), attempt(1, 30_000, life=2), state=dead_pb2.REDRIVEN, redrive_count=1
    )
    kinds = [event.kind for event in story.events(one)]
    assert kinds == ["sent", "attempt", "redriven", "attempt", "dead", "redriven"]


def test_why_it_died() -> None:
    same = letter(attempt(1, 0), attempt(2, 1_000))
    assert "Every attempt failed the same way (ValueError)" in story.why(same)
    hung = letter(attempt(1, 0, outcome="expired"), attempt(2, 9, outcome="expired"))
    assert "hung, crashed, or needs a longer invisible duration" in story.why(hung)
    mixed = letter(attempt(1, 0), attempt(2, 9, failure_class="KeyError"))
    assert "ended differently: ValueError (1), KeyError (1)" in story.why(mixed)
    assert "straight to the dead letters" in story.why(letter(origin_topic=""))
    assert "refused it" in story.why(letter(attempt(1, 0), reason="rejected"))


def test_the_line_of_a_life_is_to_scale() -> None:
    spans = story.line(letter(attempt(1, 30_000, backoff_ms=15_000)))
    assert [(span.kind, round(span.x)) for span in spans] == [("wait", 508), ("nack", 500)]
    assert story.line(letter()) == []

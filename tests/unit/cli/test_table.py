"""Columns on a terminal."""

import pytest

from latermq_cli.terminal.facts import fact
from latermq_cli.terminal.table import Column, cut, display_width, plain, plain_lines, render, wrap

NAMES = (Column("NAME", flex=True), Column("COUNT", right=True))


def test_columns_line_up() -> None:
    assert render(NAMES, [("orders", "1"), ("x", "1,204")], None) == [
        "NAME    COUNT",
        "orders      1",
        "x       1,204",
    ]


def test_wide_characters_take_two_columns() -> None:
    assert display_width("注文") == 4
    assert display_width("e\u0301") == 1
    lines = render(NAMES, [("注文", "1"), ("abcd", "2")], None)
    assert [display_width(line) for line in lines[1:]] == [11, 11]


def test_a_narrow_terminal_cuts_only_what_may_be_cut() -> None:
    lines = render(NAMES, [("a-very-long-name-of-a-topic", "1,204")], 20)
    assert lines[1] == "a-very-long-…  1,204"
    assert all(display_width(line) <= 20 for line in lines)
    assert render(NAMES, [("long-name", "1" * 30)], 20)[1].endswith("1" * 30)


def test_what_is_optional_goes_before_the_rest_becomes_unreadable() -> None:
    columns = (*NAMES, Column("ID", optional=True), Column("WHY", flex=True))
    row = ("orders", "1", "0123456789", "because of a long reason")
    assert render(columns, [row], 60)[0].split() == ["NAME", "COUNT", "ID", "WHY"]
    assert render(columns, [row], 40) == [
        "NAME    COUNT  WHY",
        "orders      1  because of a long reason",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("naïve 注文", "naïve 注文"),
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("two\nlines\t", "two\\nlines\\t"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
    ],
)
def test_nothing_drives_the_terminal(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_lines_keep_their_ends_and_indentation() -> None:
    assert plain_lines("a\n\tb\x07\n") == ["a", "    b\\x07"]


def test_cutting_counts_columns() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert cut("注文注文", 5) == "注文…"
    assert cut("abcd", 4) == "abcd"


def test_wrapping_breaks_between_words_where_there_are_any() -> None:
    assert wrap("one two three", 8) == ["one two", "three"]
    assert wrap("abcdefghij", 4) == ["abcd", "efgh", "ij"]
    assert wrap("    kept", 20) == ["    kept"]
    assert wrap("", 10) == [""]


def test_a_fact_goes_on_below_its_value() -> None:
    assert list(fact("keys", ["one two three four five six"], 34)) == [
        "  keys        one two three four",
        "              five six",
    ]
    assert list(fact("keys", [], 34)) == []

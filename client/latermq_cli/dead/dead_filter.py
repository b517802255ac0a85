"""Which dead letters a command means: the options of list, redrive and drop."""

import re
from collections import Counter
from typing import Any, Final

import click

from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import filter_options, instant
from latermq_cli.terminal.table import plain
from latermq_proto.latermq.v1 import dead_letter_pb2 as dead_pb2

_SIGNATURE: Final = re.compile(r"[0-9a-fA-F]{16}")
REASONS: Final = ("attempts_exhausted", "forwarded", "rejected", "filtered", "sent")
_LOOKED_AT_MAX: Final = 10_000  # letters
_CLASSES_MAX: Final = 10
STATES: Final = ("dead", "redriven", "dropped", "any")


def signature(given: str) -> str:
    """Read the 16 hex digits of a kind of failure; a `type=` for options."""
    if not _SIGNATURE.fullmatch(given):
        raise click.BadParameter(
            f"{given!r} is not 16 hex digits, as `latermq dead list GROUP --by signature` shows"
        )
    return given.lower()


letter_filters: Final = filter_options(
    click.option(
        "--id", "ids", multiple=True, metavar="MESSAGE_ID", help="This message. Repeatable."
    ),
    click.option(
        "--offset", "offsets", type=click.IntRange(min=0), multiple=True, metavar="N",
        help="This number in %DLQ%GROUP. Repeatable.",
    ),
    click.option(
        "--signature", type=signature, metavar="HEX", help="What died of the same thing."
    ),
    click.option(
        "--class", "failure_class", default="", metavar="CLASS",
        help="What failed last with this class, e.g. TimeoutError.",
    ),
    click.option("--topic", default="", metavar="TOPIC", help="What came from this topic."),
    click.option(
        "--reason", type=click.Choice(REASONS), default=None, metavar="REASON",
        help="attempts_exhausted, forwarded, rejected, filtered or sent (there, by a producer).",
    ),
    click.option("--since", type=instant, default=None, metavar="TIME", help="Died then or later."),
    click.option("--until", type=instant, default=None, metavar="TIME", help="Died before."),
)  # fmt: skip
state_option: Final = click.option(
    "--state", type=click.Choice(STATES), default="dead", show_default=True, metavar="STATE",
    help="dead, redriven, dropped or any.",
)  # fmt: skip


def classes_there(broker: Connection, group: str, failure_class: str) -> dict[str, int] | None:
    """Count the classes that the group's letters have, where nothing has the one asked for.

    Returns:
        The most frequent first; None when no class was asked for.
    """
    if not failure_class:
        return None
    request = dead_pb2.ListDeadLettersRequest(
        group=group, filter=dead_pb2.DeadLetterFilter(state=dead_pb2.ANY), newest_first=True
    )
    listing = broker.dead_letters.ListDeadLetters
    letters, _ = broker.shards.pages(listing, request, "letters", _LOOKED_AT_MAX)
    counts = Counter(letter.failure_class for letter in letters if letter.failure_class)
    return dict(counts.most_common(_CLASSES_MAX))


def class_words(classes: dict[str, int] | None) -> str:
    """Name the classes of `classes_there` in a clause for people; empty for None."""
    if classes is None:
        return ""
    if not classes:
        return "; no letter has a class"
    named = ", ".join(f"{plain(name)} ({count:,})" for name, count in classes.items())
    return f"; classes there: {named}"


def class_fields(classes: dict[str, int] | None) -> dict[str, Any]:
    """Return the classes of `classes_there` as a field of an object of --json; none for None."""
    return {} if classes is None else {"classes_there": classes}


def filter_of(wanted: dict[str, Any], state: str = "dead") -> dead_pb2.DeadLetterFilter:
    """Make the filter that the options `wanted` name."""
    return dead_pb2.DeadLetterFilter(
        message_ids=wanted["ids"],
        queue_offsets=wanted["offsets"],
        signature=wanted["signature"] or "",
        failure_class=wanted["failure_class"],
        origin_topic=wanted["topic"],
        reason=wanted["reason"] or "",
        dead_after_ms=wanted["since"] or 0,
        dead_before_ms=wanted["until"] or 0,
        state=state.upper(),
    )

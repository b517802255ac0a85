"""`latermq top`: the groups on one screen, worst first; what one of them holds and fails on.

A page is made of what the other commands ask for, so it shows nothing that they do not.
"""

import os
import select
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from latermq_cli import clock
from latermq_cli.broker import disk_words
from latermq_cli.catalog.group import LAG_COLUMNS, lag_cells, rate
from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import broker_options, example
from latermq_cli.pending.pending import failure_words
from latermq_cli.terminal.console import is_terminal, print_json, stdout_is_terminal
from latermq_cli.terminal.failures import RefusedError
from latermq_cli.terminal.jsonable import jsonable
from latermq_cli.terminal.table import Column, cut, plain, render
from latermq_cli.terminal.times import format_clock, format_duration
from latermq_proto.latermq.v1 import (
    broker_pb2,
    client_pb2,
    dead_letter_pb2,
    group_pb2,
)

GROUPS_MAX: Final = 10_000
ROWS_MAX: Final = 8  # of clients, and of failures, of one group
LETTERS_MAX: Final = 200  # looked at for the failures of one group
HELP: Final = "q quit · ↑↓ choose · enter look into · esc back · s sort"
_HOME: Final = "\x1b[H"
_REST: Final = "\x1b[J"
_LINE: Final = "\x1b[K"
_ENTER: Final = "\x1b[?1049h\x1b[?25l"  # a screen of its own, without a cursor
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_KEYS: Final = {
    b"\x1b[A": "up", b"k": "up", b"\x1b[B": "down", b"j": "down", b"\r": "enter", b"\n": "enter",
    b"\x1b": "back", b"\x7f": "back", b"h": "back", b"q": "quit", b"s": "sort", b"\x03": "quit",
}  # fmt: skip

_Key = Callable[[group_pb2.Group], Any]


def _oldest(group: group_pb2.Group) -> tuple[int, int]:
    unread_ms = group.progress.oldest_unread_at_ms
    return -unread_ms if unread_ms else -(1 << 62), group.progress.ready_count


SORTS: Final[dict[str, _Key]] = {
    "behind": _oldest,
    "ready": lambda group: group.progress.ready_count,
    "failing": lambda group: group.progress.failed_per_s,
    "dead": lambda group: group.dead_letter_count,
}


class Top:
    """What is chosen, and the lines that show it."""

    def __init__(self, broker: Connection) -> None:
        self._broker = broker
        self.sort = next(iter(SORTS))
        self.inside = ""  # the group that is looked into
        self._chosen = 0
        self._names: list[str] = []

    def press(self, key: str) -> bool:
        """Do what a key says; False: end."""
        if key == "sort":
            names = list(SORTS)
            self.sort = names[(names.index(self.sort) + 1) % len(names)]
        elif key in ("up", "down"):
            step = 1 if key == "down" else -1
            self._chosen = max(0, min(self._chosen + step, len(self._names) - 1))
        elif key == "enter" and self._names:
            self.inside = self._names[self._chosen]
        elif key == "back":
            self.inside = ""
        return key != "quit"

    def lines(self, width: int, height: int) -> list[str]:
        """Ask the broker, and make the screen."""
        lines = list(self._head())
        if self.inside:
            lines += self._group(self.inside, width)
        else:
            lines += self._groups(width, height - len(lines) - 2)
        lines = [cut(line, width) for line in lines[: height - 1]]
        return [*lines, *[""] * (height - 1 - len(lines)), cut(HELP, width)]

    def _head(self) -> Iterator[str]:
        broker = self._broker
        seen = broker.call(broker.brokers.GetBroker, broker_pb2.GetBrokerRequest()).broker
        waiting, totals = seen.waiting, seen.totals
        yield (
            f"{plain(seen.name)} {seen.version}  {format_clock(clock.now_ms())[:8]}  "
            f"groups by {self.sort}"
        )
        yield (
            f"{waiting.delayed:,} delayed, {waiting.in_flight:,} held, {waiting.backoff:,} in "
            f"backoff, {waiting.ready_retries:,} ready again; {seen.clients:,} clients"
        )
        yield (
            f"late ≤ {totals.lateness_p99_ms:.3g} ms, loop ≤ {totals.loop_lag_p99_ms:.3g} ms, "
            f"sync ≤ {totals.sync_p99_ms:.3g} ms; disk {disk_words(seen.disk)}"
        )
        yield ""

    def listed(self) -> list[group_pb2.Group]:
        """Ask for the groups, worst first."""
        groups = self._broker.each(
            self._broker.groups.ListGroups, group_pb2.ListGroupsRequest(), "groups", GROUPS_MAX
        )
        return sorted(groups, key=SORTS[self.sort], reverse=True)

    def _groups(self, width: int, rows_max: int) -> Iterator[str]:
        groups = self.listed()
        self._names = [group.name for group in groups]
        self._chosen = min(self._chosen, max(0, len(groups) - 1))
        first = max(0, self._chosen - max(1, rows_max) + 1)
        now_ms = clock.now_ms()
        columns = (
            Column("GROUP", flex=True), *LAG_COLUMNS,
            Column("FAILED", right=True), Column("DEAD", right=True),
        )  # fmt: skip
        rows = [
            (
                group.name, *lag_cells(group.progress, now_ms),
                rate(group.progress.failed_per_s), f"{group.dead_letter_count:,}",
            )
            for group in groups[first : first + max(1, rows_max)]
        ]  # fmt: skip
        head, *lines = render(columns, rows, width - 2)
        yield f"  {head}"
        for number, line in enumerate(lines, first):
            yield f"{'>' if number == self._chosen else ' '} {line}"

    def _group(self, name: str, width: int) -> Iterator[str]:
        broker = self._broker
        request = group_pb2.GetGroupRequest(name=name)
        group = broker.call(broker.groups.GetGroup, request).group
        now_ms = clock.now_ms()
        yield f"group {plain(name)}"
        columns = (Column("TOPIC", flex=True), *LAG_COLUMNS, Column("FAILED", right=True))
        rows = [(t.topic, *lag_cells(t, now_ms), rate(t.failed_per_s)) for t in group.topics]
        yield from render(columns, rows, width)
        yield ""
        clients, _ = broker.pages(
            broker.clients.ListClients, client_pb2.ListClientsRequest(group=name), "clients", 1_000
        )
        clients.sort(key=lambda client: -client.held_count)
        held = [
            (
                client.client_id, f"{client.held_count:,}",
                format_duration(max(0, now_ms - client.since_at_ms)), client.address,
            )
            for client in clients[:ROWS_MAX]
        ]  # fmt: skip
        of_clients = (Column("CLIENT", flex=True), Column("HOLDS", right=True),
                   Column("SINCE", right=True), Column("ADDRESS", optional=True))  # fmt: skip
        yield from render(of_clients, held, width)
        yield ""
        yield from self._letters(group, width)

    def _letters(self, group: group_pb2.Group, width: int) -> Iterator[str]:
        """What its newest dead letters died of."""
        if not group.dead_letter_count:
            yield "no dead letters"
            return
        broker = self._broker
        request = dead_letter_pb2.ListDeadLettersRequest(group=group.name, newest_first=True)
        letters = broker.each(broker.dead_letters.ListDeadLetters, request, "letters", LETTERS_MAX)
        causes = Counter(
            failure_words(letter.failure_class, letter.failure_text) or "no failure told"
            for letter in letters
        )
        columns = (Column("LETTERS", right=True), Column("DIED OF", flex=True))
        rows = [(f"{count:,}", cause) for cause, count in causes.most_common(ROWS_MAX)]
        yield from render(columns, rows, width)


@click.command(epilog=example("latermq top", "latermq top --every 5", "latermq top --once"))
@click.option("--every", type=click.FloatRange(min=0.2), default=2.0, show_default=True,
              metavar="SECONDS", help="Ask the broker so often.")  # fmt: skip
@click.option("--once", is_flag=True, help="Print the groups once, and end.")
@broker_options
def top(every: float, once: bool, endpoint: str, as_json: bool) -> None:
    """Watch the consumer groups: who is behind, who fails, how late the broker is.

    READY, BEHIND, HELD and the rates are as in `latermq group list`.
    """
    with Connection(endpoint) as broker:
        screen = Top(broker)
        if as_json:
            print_json({"groups": [jsonable(group) for group in screen.listed()]})
        elif once:
            columns, _ = shutil.get_terminal_size()
            for line in screen.lines(columns, 1_000):
                if line and line != HELP:
                    click.echo(line)
        elif not (stdout_is_terminal() and is_terminal(sys.stdin)):
            raise RefusedError("stdin or stdout is not a terminal; pass --once or --json")
        else:
            with _keys() as pressed:
                _run(screen, every, pressed)


def _run(screen: Top, every: float, pressed: Callable[[float], str]) -> None:
    going = True
    while going:
        size = shutil.get_terminal_size()
        text = f"{_LINE}\r\n".join(screen.lines(size.columns, size.lines))
        click.echo(_HOME + text + _LINE + _REST, nl=False)
        going = screen.press(pressed(every))


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Read keys one by one, without their being shown; the terminal is as before afterwards."""
    import termios  # not on Windows
    import tty

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def pressed(timeout_s: float) -> str:
        if not select.select([stdin], [], [], timeout_s)[0]:
            return ""
        return _KEYS.get(os.read(stdin, 16), "")

    try:
        tty.setcbreak(stdin)
        click.echo(_ENTER, nl=False)
        yield pressed
    finally:
        click.echo(_LEAVE, nl=False)
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)

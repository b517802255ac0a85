"""`latermq top`: the groups on one screen, worst first; what one of them holds and fails on.

A page is made of what the other commands ask for, so it shows nothing that they do not. Of a
cluster a group's line is of all shards together, and inside each has lines of its own; a shard that
does not answer is named below the head.
"""

import os
import re
import select
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

from latermq_cli import clock
from latermq_cli.broker import disk_words
from latermq_cli.catalog.group import LAG_COLUMNS, lag_cells, rate
from latermq_cli.catalog.group_order import ORDERS, first_groups, in_order, named_groups
from latermq_cli.connection.connection import Connection
from latermq_cli.connection.options import broker_options, example
from latermq_cli.terminal.console import is_terminal, print_json, stdout_is_terminal
from latermq_cli.terminal.failures import CommandError, NotThereError, RefusedError
from latermq_cli.terminal.output import obeyed
from latermq_cli.terminal.table import Column, cut, plain, render
from latermq_cli.terminal.termination import orderly_termination
from latermq_cli.terminal.times import format_clock
from latermq_cli.terminal.watch import WATCH_S, pause
from latermq_proto.latermq.v1 import (
    broker_pb2,
    client_pb2,
    dead_letter_pb2,
    group_pb2,
)
from latermq_text.durations import format_duration
from latermq_text.letters import failure_of
from latermq_text.whole import whole_group

GROUPS_MAX: Final = 10_000  # with --json
REACH: Final = 20  # groups below the screen that are asked for: keys may come faster than answers
ROWS_MAX: Final = 8  # of clients, and of failures, of one group
LETTERS_MAX: Final = 200  # looked at for the failures of one group
_HEAD_LINES: Final = 3
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

_ONE_KEY: Final = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO[@-~]|.", re.DOTALL)
_CUT_OFF: Final = re.compile(rb"\x1b(\[[0-?]*[ -/]*|O)?$")  # the rest of that key comes at once
_READ_BYTES_MAX: Final = 1_024
KEY_REST_S: Final = 0.05  # that a lone escape waits, too: it may be the begin of an arrow


class Top:
    """What is chosen, and the lines that show it."""

    def __init__(self, broker: Connection) -> None:
        self._broker = broker
        self.sort = next(iter(ORDERS))
        self.inside = ""  # the group that is looked into
        self.said = ""  # below the head, until a key is pressed
        self._chosen = 0
        self._names: list[str] = []  # of the rows

    def forget_silent(self) -> None:
        """Have the next screen name those shards alone that do not answer then."""
        self._broker.shards.forget_silent()

    def press(self, key: str) -> bool:
        """Do what a key says; False: end."""
        self.said = ""
        if key == "sort":
            names = list(ORDERS)
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
        body_height = height - 6
        head = list(self._head())
        body = list(
            self._group(self.inside, width) if self.inside else self._groups(width, body_height)
        )
        silent = self._broker.shards.silent()
        said = [self.said] if self.said else []
        lines = [*head, *(f"no answer: {plain(each)}" for each in silent), *said, "", *body]
        lines = [cut(line, width) for line in lines[: height - 1]]
        return [*lines, *[""] * (height - 1 - len(lines)), cut(HELP, width)]

    def _head(self) -> Iterator[str]:
        """Say of all shards how many wait, and of the worst how late it is."""
        request = broker_pb2.GetBrokerRequest()
        parts = self._broker.shards.each(lambda b: b.call(b.brokers.GetBroker, request).broker)
        seen = [part for _, part in parts]
        first = seen[0]
        named = f"{len(seen)} shards" if self._broker.shards.several else plain(first.name)
        yield (
            f"{named} {first.version}  {format_clock(clock.now_ms())[:8]}  groups by {self.sort}"
        )
        delayed, held, backoff, ready = (
            sum(getattr(each.waiting, name) for each in seen)
            for name in ("delayed", "in_flight", "backoff", "ready_retries")
        )
        yield (
            f"{delayed:,} delayed, {held:,} held, {backoff:,} in backoff, {ready:,} ready again; "
            f"{max(each.clients for each in seen):,} clients"
        )
        late, loop, sync = (
            max(getattr(each.totals, name) for each in seen)
            for name in ("lateness_p99_ms", "loop_lag_p99_ms", "sync_p99_ms")
        )
        worst = max(seen, key=lambda each: (each.disk.state, -each.disk.free_bytes))
        yield (
            f"late ≤ {late:.3g} ms, loop ≤ {loop:.3g} ms, sync ≤ {sync:.3g} ms; "
            f"disk {disk_words(worst.disk)}"
        )

    def listed(self) -> list[tuple[int, group_pb2.Group]]:
        """Ask each shard for all its groups; they with its number, worst first."""

        def of_one(broker: Connection) -> list[group_pb2.Group]:
            request = group_pb2.ListGroupsRequest()
            return list(broker.each(broker.groups.ListGroups, request, "groups", GROUPS_MAX))

        parts = self._broker.shards.each(of_one)
        shard_of = {id(group): number for number, groups in parts for group in groups}
        groups = in_order((group for _, groups in parts for group in groups), self.sort)
        return [(shard_of[id(group)], group) for group in groups]

    def _worst(self, count: int) -> list[group_pb2.Group]:
        """Ask for the groups that come first, each of all shards together."""
        shards = self._broker.shards
        parts = shards.each(lambda broker: first_groups(broker, self.sort, count))
        if shards.several:  # one that is first in a shard may be last in another
            names = {group.name for _, groups in parts for group in groups}
            parts = shards.each(lambda broker: named_groups(broker, names))
        by_name: dict[str, list[group_pb2.Group]] = {}
        for _, groups in parts:
            for group in groups:
                by_name.setdefault(group.name, []).append(group)
        return in_order(map(whole_group, by_name.values()), self.sort)

    def _groups(self, width: int, rows_max: int) -> Iterator[str]:
        """Show the groups, the worst first; so many are asked for as may be reached by keys."""
        groups = self._worst(self._chosen + rows_max + REACH)
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
        shards = self._broker.shards
        request = group_pb2.GetGroupRequest(name=name)
        parts = shards.each(lambda b: b.call(b.groups.GetGroup, request).group)
        now_ms = clock.now_ms()
        yield f"group {plain(name)}"
        columns = (Column("TOPIC", flex=True), *LAG_COLUMNS, Column("FAILED", right=True))
        rows = [
            (*shards.cell(number), t.topic, *lag_cells(t, now_ms), rate(t.failed_per_s))
            for number, group in parts
            for t in group.topics
        ]
        yield from render(shards.columns(columns), rows, width)
        yield ""
        yield from _screen_part("clients", lambda: self._clients(name, width, now_ms))
        yield ""
        count = sum(group.dead_letter_count for _, group in parts)
        yield from _screen_part("dead letters", lambda: self._letters(name, count, width))

    def _clients(self, name: str, width: int, now_ms: int) -> Iterator[str]:
        """Say who consumes, and how much of each shard they hold, who has most first."""
        shards = self._broker.shards

        def of_one(broker: Connection) -> list[client_pb2.Client]:
            request = client_pb2.ListClientsRequest(group=name)
            return broker.pages(broker.clients.ListClients, request, "clients", 1_000)[0]

        parts = shards.each(of_one)
        clients = [(number, client) for number, listed in parts for client in listed]
        clients.sort(key=lambda row: -row[1].held_count)
        held = [
            (
                *shards.cell(number), client.client_id, f"{client.held_count:,}",
                format_duration(max(0, now_ms - client.since_at_ms)) if client.since_at_ms else "-",
                client.address,
            )
            for number, client in clients[:ROWS_MAX]
        ]  # fmt: skip
        of_clients = (Column("CLIENT", flex=True), Column("HOLDS", right=True),
                   Column("SINCE", right=True), Column("ADDRESS", optional=True))  # fmt: skip
        yield from render(shards.columns(of_clients), held, width)

    def _letters(self, name: str, count: int, width: int) -> Iterator[str]:
        """Say what its newest dead letters died of."""
        if not count:
            yield "no dead letters"
            return

        def of_one(broker: Connection) -> list[dead_letter_pb2.DeadLetter]:
            request = dead_letter_pb2.ListDeadLettersRequest(group=name, newest_first=True)
            method = broker.dead_letters.ListDeadLetters
            return list(broker.each(method, request, "letters", LETTERS_MAX))

        parts = self._broker.shards.each(of_one)
        letters = [letter for _, listed in parts for letter in listed]
        causes = Counter(failure_of(letter) or "no failure told" for letter in letters)
        columns = (Column("LETTERS", right=True), Column("DIED OF", flex=True))
        rows = [(f"{count:,}", cause) for cause, count in causes.most_common(ROWS_MAX)]
        yield from render(columns, rows, width)


@click.command(epilog=example("latermq top", "latermq top --every 5", "latermq top --once"))
@click.option("--every", type=pause, default=WATCH_S, show_default=True,
              metavar="SECONDS", help="Ask the broker so often.")  # fmt: skip
@click.option("--once", is_flag=True, help="Print the groups once, and end.")
@broker_options
def top(every: float, once: bool, endpoint: str, as_json: bool) -> None:
    """Watch the consumer groups: who is behind, who fails, how late the broker is.

    READY, BEHIND, HELD and the rates are as in `latermq group list`. Of a cluster, all shards
    together; inside a group, and with --json, each for itself.
    """
    with Connection(endpoint) as broker:
        screen = Top(broker)
        if as_json:
            shards, groups = broker.shards, screen.listed()
            for number, group in groups:
                shards.remember(number, [group])
            print_json({"groups": [shards.jsonable(group) for _, group in groups]})
            shards.finish()
        elif once:
            columns, _ = shutil.get_terminal_size()
            for line in screen.lines(columns, 1_000):
                if line and line != HELP:
                    click.echo(line)
            broker.shards.finish()
        elif not (stdout_is_terminal() and is_terminal(sys.stdin)):
            raise RefusedError("stdin or stdout is not a terminal; pass --once or --json")
        else:
            with orderly_termination(), _keys() as pressed:
                _run(screen, every, pressed)


def keys_of(typed: bytes) -> list[str]:
    """Split what a terminal sent into the keys that mean something, in their order."""
    keys = (_KEYS.get(key) for key in _ONE_KEY.findall(typed))
    return [key for key in keys if key is not None]


def typed_in(wait: Callable[[float], bool], read: Callable[[], bytes], timeout_s: float) -> bytes:
    """Return what is typed within a time, with the rest of a key that came in pieces.

    Args:
        wait: tells whether there is something to read, after so many seconds at most.
    """
    if not wait(timeout_s):
        return b""
    typed = read()
    while _CUT_OFF.search(typed) and wait(KEY_REST_S):
        rest = read()
        if not rest:  # nobody types any more
            break
        typed += rest
    return typed


def _screen_part(what: str, lines: Callable[[], Iterator[str]]) -> list[str]:
    """Return a part of a screen, or why this user is not told of it."""
    try:
        return list(lines())
    except RefusedError as error:
        return [f"{what}: {plain(error.message)}"]


def _run(screen: Top, every: float, pressed: Callable[[float], list[str]]) -> None:
    lines: list[str] = []
    going = True
    while going:
        size = shutil.get_terminal_size()
        screen.forget_silent()
        lines = _looked(screen, size.columns, size.lines, lines)
        text = obeyed(f"{_LINE}\r\n").join(lines)
        click.echo(obeyed(_HOME) + text + obeyed(_LINE + _REST), nl=False)
        going = all(screen.press(key) for key in pressed(every))


def _looked(screen: Top, width: int, height: int, before: Sequence[str]) -> list[str]:
    """Return the screen; while the broker is away the one before, which says so, as --watch does.

    Raises CommandError: at the first look, or what is asked is refused.
    """
    try:
        return screen.lines(width, height)
    except NotThereError as error:  # the group was deleted
        if not screen.inside:
            raise
        screen.press("back")
        screen.said = plain(error.message)
        return _looked(screen, width, height, before)
    except RefusedError:
        raise
    except CommandError as error:
        if not before:
            raise
        said = cut(f"no answer: {plain(error.message)}", width)
        return [*before[:_HEAD_LINES], said, *before[_HEAD_LINES + 1 :]][:height]


@contextmanager
def _keys() -> Iterator[Callable[[float], list[str]]]:
    """Read keys without their being shown; the terminal is as before afterwards, and after Ctrl-Z.

    What it yields returns at once, without a key, when the process was stopped and goes on.
    """
    import termios  # not on Windows
    import tty

    stdin, stdout = sys.stdin.fileno(), sys.stdout.fileno()
    before: list[Any] | None = None  # while the terminal is ours
    resumed, resume = os.pipe()

    def enter() -> None:
        nonlocal before
        before = termios.tcgetattr(stdin)
        tty.setcbreak(stdin)
        os.write(stdout, _ENTER.encode())  # a signal may come amid what `click.echo` writes

    def leave() -> None:
        nonlocal before
        if before is None:  # it is ended while it is stopped
            return
        modes, before = before, None
        try:
            os.write(stdout, _LEAVE.encode())
        finally:
            termios.tcsetattr(stdin, termios.TCSADRAIN, modes)

    def stop(number: int, _: object) -> None:
        leave()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)  # it goes on behind this line
        signal.signal(number, stop)
        enter()
        os.write(resume, b".")

    def wait(timeout_s: float) -> bool:
        ready = select.select([stdin, resumed], [], [], timeout_s)[0]
        if resumed in ready:
            os.read(resumed, _READ_BYTES_MAX)
            return False
        return bool(ready)

    def read() -> bytes:
        return os.read(stdin, _READ_BYTES_MAX)

    def pressed(timeout_s: float) -> list[str]:
        return keys_of(typed_in(wait, read, timeout_s))

    stops = signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL  # else nobody would have it go on
    try:
        enter()
        if stops:
            signal.signal(signal.SIGTSTP, stop)
        yield pressed
    finally:
        if stops:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        leave()
        os.close(resumed)
        os.close(resume)

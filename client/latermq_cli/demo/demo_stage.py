"""Where `latermq demo` plays: what it prints, what it starts, and that nothing stays behind.

Every process is started in a session of its own and its lines come in through one queue. `close`
ends them all, politely first; a session's stragglers (Spark forks workers into process groups of
their own) are found by session id and killed.
"""

import contextlib
import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from latermq_cli import clock
from latermq_cli.terminal.console import styled
from latermq_cli.terminal.output import obeyed

LINES_MAX: Final = 1000  # waiting in the queue; a program that says more is held up
STOP_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.1
INDENT: Final = "    "
_ANEW: Final = "\r\x1b[K"  # begin the line anew


class StoryError(Exception):
    """The broker did something else than the story says."""


class Event(NamedTuple):
    """One JSON line of one program; `name` "" when the line was none, `ended` when it is gone."""

    actor: str
    pid: int
    name: str
    text: str
    fields: Mapping[str, Any]
    ended: bool = False


NOTHING: Final = Event("", 0, "", "", {})


class Stage:
    """The programs of one run, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started_ms = clock.now_ms()
        self._actors: dict[str, subprocess.Popen[str]] = {}
        self._sessions: list[int] = []
        self._lines: queue.Queue[Event] = queue.Queue(LINES_MAX)
        self._later: deque[Event] = deque()  # said by others while a command ran
        self._waiting_for = ""
        self._announced = False
        self._dirty = False  # the waiting line is on the screen
        self.environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": str(max(60, shutil.get_terminal_size((124, 24)).columns - len(INDENT))),
        }

    # --- what is printed ---

    @property
    def elapsed_s(self) -> float:
        return (clock.now_ms() - self._started_ms) / 1000

    def heading(self, text: str) -> None:
        self._clear_waiting()
        click.echo()
        click.echo(styled(f"[{self.elapsed_s:4.1f} s] {text}", bold=True))

    def tell(self, text: str, **style: Any) -> None:
        self._clear_waiting()
        click.echo(styled(INDENT + text, **style) if style else INDENT + text)

    def shell(self, command: str) -> None:
        """Show a command as a user would type it."""
        self._clear_waiting()
        click.echo(styled(f"{INDENT}$ {command}", fg="cyan"))

    def _show_waiting(self, since_ms: int) -> None:
        """Show the wait after a second: on a terminal a clock that runs, elsewhere one line."""
        waited_s = (clock.now_ms() - since_ms) / 1000
        if not self._waiting_for or waited_s < 1:
            return
        if sys.stdout.isatty():
            waits = f"{INDENT}… {self._waiting_for} [{waited_s:.1f} s]"
            click.echo(obeyed(_ANEW) + waits, nl=False)
            self._dirty = True
        elif not self._announced:
            click.echo(f"{INDENT}… {self._waiting_for}")
        self._announced = True

    def _clear_waiting(self) -> None:
        if self._dirty:
            click.echo(obeyed(_ANEW), nl=False)
            self._dirty = False

    # --- what is started ---

    def run(self, *words: str, waiting_for: str = "", timeout_s: float = 30.0) -> int:
        """Show and run one `latermq` command as a user would; return when its first line came, ms.

        Raises:
            StoryError: it failed, printed nothing or did not end.
        """
        command = f"latermq {shlex.join(words)}"
        self.shell(command)
        self.play("latermq", "latermq_broker", *words)
        first_line_ms = 0
        others: list[Event] = []
        with self._waiting(waiting_for):
            for event in self._lines_until(command, timeout_s):
                if event.actor != "latermq":
                    others.append(event)
                elif event.ended:
                    break
                else:
                    first_line_ms = first_line_ms or clock.now_ms()
                    self.tell(event.text)
        self._later.extend(others)
        self.finish("latermq", STOP_TIMEOUT_S)
        if not first_line_ms:
            raise StoryError(f"`{command}` printed nothing")
        return first_line_ms

    def play(self, actor: str, *words: str) -> None:
        """Start a Python module in the background; its lines arrive in `events`."""
        process = self._start(actor, [sys.executable, "-m", *words])
        self._actors[actor] = process
        threading.Thread(target=self._listen, args=(actor, process), daemon=True).start()

    def _start(self, actor: str, command: list[str]) -> subprocess.Popen[str]:
        with open(self._log_of(actor), "a", encoding="utf-8") as complaints:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                env=self.environment,
                cwd=self._directory,
                start_new_session=True,
            )
        self._sessions.append(process.pid)
        return process

    def _listen(self, actor: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(_event(actor, process.pid, line.rstrip("\n")))
        self._lines.put(Event(actor, process.pid, "", "", {}, ended=True))

    def events(
        self, waiting_for: str, *, until: Callable[[], bool], timeout_s: float = 30.0
    ) -> Iterator[Event]:
        """Yield what the programs say, as they say it, until `until` holds, asked now and then.

        Raises:
            StoryError: the time is up, or a program failed.
        """
        with self._waiting(waiting_for):
            for event in self._lines_until(waiting_for, timeout_s):
                if event.ended:
                    if self._actors[event.actor].wait(STOP_TIMEOUT_S) != 0:
                        raise StoryError(f"{event.actor} failed: {self._complaint(event.actor)}")
                elif event.actor:
                    yield event
                if not self._later and self._lines.empty() and until():
                    return

    @contextlib.contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        self._waiting_for, self._announced = what, False
        try:
            yield
        finally:
            self._clear_waiting()
            self._waiting_for = ""

    def _lines_until(self, what: str, timeout_s: float) -> Iterator[Event]:
        """Yield every event, and NOTHING now and then. Raises StoryError when the time is up."""
        since_ms = clock.now_ms()
        while clock.now_ms() - since_ms < timeout_s * 1000:
            if self._later:
                event = self._later.popleft()
            else:
                try:
                    event = self._lines.get(timeout=POLL_S)
                except queue.Empty:
                    self._show_waiting(since_ms)
                    event = NOTHING
            playing = self._actors.get(event.actor)
            if event is NOTHING or (playing is not None and playing.pid == event.pid):
                yield event  # else: last words of one that was stopped
        raise StoryError(f"waited {timeout_s:.0f} s for {what}, in vain")

    def finish(self, actor: str, timeout_s: float) -> None:
        """Wait until a program that ends by itself has done so.

        Raises:
            StoryError: it failed or did not end.
        """
        process = self._actors[actor]
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise StoryError(f"{actor} did not end within {timeout_s:.0f} s") from None
        del self._actors[actor]
        if code != 0:
            raise StoryError(f"{actor} ended with code {code}: {self._complaint(actor)}")

    def stop(self, actor: str) -> None:
        """Send SIGTERM, and wait: what a deployment does.

        Raises:
            StoryError: it did not end by itself, or badly.
        """
        self._actors[actor].terminate()
        self.finish(actor, STOP_TIMEOUT_S)

    def _log_of(self, actor: str) -> Path:
        return self._directory / f"{actor}.log"

    def _complaint(self, actor: str) -> str:
        """Read the end of what it wrote on stderr."""
        lines = self._log_of(actor).read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-20:]) or "it said nothing on stderr"

    def close(self) -> None:
        """End everything that was started. Never raises; a second call does nothing."""
        for process in reversed(self._actors.values()):  # the broker, started first, goes last
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
        self._actors.clear()
        for pid in _members(set(self._sessions)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._sessions.clear()


def _event(actor: str, pid: int, line: str) -> Event:
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or "event" not in fields:
        return Event(actor, pid, "", line, {})
    return Event(actor, pid, fields.pop("event"), fields.pop("text", ""), fields)


def _members(sessions: set[int]) -> list[int]:
    """List the processes that belong to these sessions, whatever their process group or parent."""
    members: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue  # it ended meanwhile
        session = int(stat.rpartition(")")[2].split()[3])  # after the name: state ppid pgrp session
        if session in sessions:
            members.append(int(entry.name))
    return members

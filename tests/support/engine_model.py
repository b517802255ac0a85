"""What a broker is to do, in dicts and lists: no log, no files, nothing that has to be recovered.

One topic, some consumer groups. Whoever drives it tells it what was asked of the engine and when
time passes, and compares; it never looks at the engine. A message is in one of

    waits ─due─► queue ─retention─► expired        half ─commit─► queue, ─rollback─► gone
      └─cancel─► gone

and what each group has of it, once it is in a queue, is told in `group_model`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from latermq_broker.delivery.halves import HalfState
from support.group_model import IN_HAND, Group, Held, Message, Where

FIRST_CHECK_MS = 6_000
CHECK_MS = 10_000
CHECKS_MAX = 2
AGE_MS = 60_000  # of a half message
HALVES_MAX = 12


@dataclass
class Half:
    message: Message
    stored_ms: int
    due_ms: int  # of its next check
    checks: int = 0
    state: HalfState = HalfState.PENDING


class Model:
    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = {group.name: group for group in groups}
        self.messages: dict[str, Message] = {}
        self.halves: dict[str, Half] = {}  # by transaction id, the oldest first
        self.windows: set[int] = set()  # when those of dedup ids end

    def send(self, name: str, tag: str, key: str, due_ms: int, where: Where) -> Message:
        message = Message(name, len(self.messages), tag, key, due_ms, where)
        self.messages[name] = message
        return message

    def at(self, *wheres: Where) -> list[Message]:
        return [message for message in self.messages.values() if message.where in wheres]

    def enter(self, message: Message, place: tuple[int, int], entered_ms: int) -> None:
        """It was found in its queue: every group may have it."""
        message.where, message.place, message.entered_ms = Where.QUEUE, place, entered_ms
        for group in self.groups.values():
            group.held[message.name] = Held(message)

    def held(self, *states: str) -> list[tuple[Group, Held]]:
        return [(group, held) for group in self.groups.values() for held in group.in_state(*states)]

    def time_passes(self, now_ms: int, wall_ms: int) -> None:
        """Delayed messages follow the wall clock, everything else the broker's own time."""
        for message in self.at(Where.WAITS):
            if message.due_ms <= wall_ms:
                message.where = Where.ENTERS
        for group in self.groups.values():
            group.time_passes(now_ms)
        for half in self.pending_halves():
            if max(half.stored_ms + AGE_MS, half.due_ms) <= now_ms:  # who was asked may answer
                self.end(half, HalfState.ROLLED_BACK)

    def deadlines(self, ahead_ms: int) -> set[int]:
        """When something is due, by the broker's own time; `ahead_ms`: of it, the wall clock."""
        times = {message.due_ms - ahead_ms for message in self.at(Where.WAITS)}
        for _, held in self.held(*IN_HAND):
            times |= {held.deadline_ms, held.look_ms or held.deadline_ms}
        return times | self.windows | {half.due_ms for half in self.pending_halves()}

    # --- transactions --------------------------------------------------------------------------

    def pending_halves(self) -> list[Half]:
        return [half for half in self.halves.values() if half.state is HalfState.PENDING]

    def begin(self, name: str, message: Message, first_check_ms: int, now_ms: int) -> None:
        due_ms = now_ms + min(first_check_ms or FIRST_CHECK_MS, AGE_MS)
        self.halves[name] = Half(message, now_ms, due_ms)

    def end(self, half: Half, state: HalfState) -> None:
        half.state = state
        half.message.where = Where.ENTERS if state is HalfState.COMMITTED else Where.GONE

    def asked(self, half: Half, now_ms: int) -> None:
        half.checks += 1
        half.due_ms = now_ms + CHECK_MS
        if half.checks == CHECKS_MAX:
            half.due_ms = max(half.due_ms, half.stored_ms + AGE_MS)

    def due_checks(self, now_ms: int) -> set[str]:
        return {
            name
            for name, half in self.halves.items()
            if half.state is HalfState.PENDING
            and half.due_ms <= now_ms
            and half.checks < CHECKS_MAX
        }

    def given_up_for(self, count: int) -> Iterator[str]:
        """Who makes room for so many more: those asked in vain, the order is the broker's."""
        if len(self.pending_halves()) + count > HALVES_MAX:
            for name, half in self.halves.items():
                if half.state is HalfState.PENDING and half.checks == CHECKS_MAX:
                    yield name

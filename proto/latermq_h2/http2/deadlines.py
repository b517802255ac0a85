"""A handful of named deadlines and the earliest of them."""


class Deadlines:
    """`next_ms` may be too early (a deadline was cleared), never too late."""

    __slots__ = ("_at_ms", "next_ms")

    def __init__(self) -> None:
        self._at_ms: dict[str, int] = {}
        self.next_ms: int | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._at_ms

    def set(self, name: str, at_ms: int) -> None:
        self._at_ms[name] = at_ms
        if self.next_ms is None or at_ms < self.next_ms:
            self.next_ms = at_ms

    def clear(self, name: str) -> None:
        self._at_ms.pop(name, None)

    def clear_all(self) -> None:
        self._at_ms.clear()
        self.next_ms = None

    def take_due(self, now_ms: int) -> list[tuple[str, int]]:
        """Take out the name and time of each that is due."""
        due = [(name, at_ms) for name, at_ms in self._at_ms.items() if at_ms <= now_ms]
        for name, _ in due:
            del self._at_ms[name]
        self.next_ms = min(self._at_ms.values(), default=None)
        return due

    def refresh(self) -> None:
        """Make `next_ms` exact, after names were set again."""
        self.next_ms = min(self._at_ms.values(), default=None)

"""A command and a cluster: lists are of all its shards, and say which shard has what.

Of a broker that is alone they are as they were, but for one question more. A shard that does not
answer is told when all else was printed, with exit code 1. `--shard N` asks that shard alone.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from google.protobuf.message import Message

from latermq.admin import Method
from latermq_cli.connection.chosen_shard import chosen_shard
from latermq_cli.terminal.failures import (
    CommandError,
    NotAllError,
    NotThereError,
    RefusedError,
)
from latermq_cli.terminal.jsonable import jsonable
from latermq_cli.terminal.table import Column

Broker: TypeAlias = Any  # a Connection: its module imports this one
NAMED: Final = re.compile(r"(.+)@([0-9]+)")
SHARD: Final = Column("SHARD", right=True)

Answer = TypeVar("Answer", bound=Message)
Result = TypeVar("Result")


class Shards:
    """All shards of the cluster that a connection's broker belongs to."""

    def __init__(self, asked: Broker, connect: Callable[[str], Broker]) -> None:
        self.asked = asked
        self._connect = connect
        self._known: dict[int, Broker] | None = None
        self._silent: list[str] = []
        self._of: dict[int, int] = {}  # shards, by id of what came from them
        self._kept: list[Any] = []  # so that no other object has such an id

    @property
    def several(self) -> bool:
        """Tell whether rows are of more than one shard."""
        return len(self._connections()) > 1

    def each(self, ask: Callable[[Broker], Result]) -> list[tuple[int, Result]]:
        """Ask every shard; what those that answer say and have it, with their numbers.

        Raises:
            NotThereError: none has it, and all answer.
            CommandError: none that answers has it, or one refuses.
        """
        results: list[tuple[int, Result]] = []
        absent: CommandError | None = None
        for number, broker in self._connections().items():
            try:
                results.append((number, ask(broker)))
            except NotThereError as error:
                absent = error  # as of dead letters: each shard has its own
            except RefusedError:
                raise
            except CommandError as error:
                if not self.several:
                    raise
                self._silent.append(f"shard {number}: {error.message}")
        if not results:
            if absent is not None and not self._silent:
                raise absent
            said = [] if absent is None else [absent.message]
            raise CommandError("; ".join([*said, *self._silent]))  # it may be where nobody answers
        return results

    def first(self, ask: Callable[[Broker], Result]) -> tuple[int, Result]:
        """Ask one shard after the other until one does not say that it has no such thing.

        Raises:
            NotThereError: all of them do.
            CommandError: it may be in one that does not answer.
        """
        refusal: CommandError | None = None
        for number, broker in self._connections().items():
            try:
                return number, ask(broker)
            except CommandError as error:
                if refusal is None or isinstance(refusal, RefusedError):
                    refusal = error
        assert refusal is not None
        raise refusal

    def answers(
        self, method: Method[Any], request: Any, field: str, limit: int
    ) -> Iterator[tuple[int, Any]]:
        """Yield (shard, answer) of a listing that is paged in each shard, as `Connection.answers`.

        Afterwards the request has a page token if there is more anywhere.
        """
        token = ""

        def ask(broker: Broker) -> list[Any]:
            nonlocal token
            own = type(request)()
            own.CopyFrom(request)
            answers = list(broker.answers(method, own, field, limit))
            token = token or own.page_token
            return answers

        for number, answers in self.each(ask):
            for answer in answers:
                self.remember(number, getattr(answer, field))
                yield number, answer
        request.page_token = token

    def pages(
        self,
        method: Method[Any],
        request: Any,
        field: str,
        limit: int,
        order: Callable[[Any], Any] | None = None,
    ) -> tuple[list[Any], bool]:
        """Return the items of a listing of all shards, and whether there are more.

        Args:
            order: by which each shard lists them.
        """
        parts = [
            (number, list(getattr(answer, field)))
            for number, answer in self.answers(method, request, field, limit)
        ]
        items = [item for _, part in parts for item in part]
        for number, part in parts:
            self.remember(number, part)
        if order is not None and self.several:
            items.sort(key=order)
        return items[:limit], bool(request.page_token) or len(items) > limit

    def whose(self, handle: str) -> tuple[str, Broker]:
        """Return an id or a handle as its shard made it, and the connection to that shard.

        Raises:
            RefusedError: it names no shard, where there are several.
        """
        match = NAMED.fullmatch(handle)
        own, number = (handle, None) if match is None else (match[1], int(match[2]))
        if not self.several:
            return own, self.asked
        if number not in self._connections():
            raise RefusedError(f"{handle} names no shard: say HANDLE@N, as it was printed")
        return own, self._connections()[number]

    def number(self, broker: Broker) -> int:
        """Return which shard a connection is to."""
        return next(number for number, each in self._connections().items() if each is broker)

    def to(self, number: int) -> Broker:
        """Return the connection to a shard."""
        return self._connections()[number]

    def of(self, item: Any) -> int:
        """Return the shard that an item of a listing came from."""
        return self._of[id(item)]

    def columns(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        """Put the column SHARD before the others, where there are several."""
        return (SHARD, *columns) if self.several else tuple(columns)

    def rows(self, rows: Sequence[Sequence[str]], items: Sequence[Any]) -> list[tuple[str, ...]]:
        """Put the shard of each item before its row, where there are several."""
        if not self.several:
            return [tuple(row) for row in rows]
        return [(str(self.of(item)), *row) for row, item in zip(rows, items, strict=True)]

    def cell(self, number: int) -> tuple[str, ...]:
        """Return the cell of the column SHARD, where there is one."""
        return (str(number),) if self.several else ()

    def jsonable(self, item: Any) -> dict[str, Any]:
        """Return an item for JSON, with its shard where there are several."""
        shown: dict[str, Any] = jsonable(item)
        return {"shard": self.of(item), **shown} if self.several else shown

    def silent(self) -> list[str]:
        """Return why each shard that did not answer did not."""
        return list(dict.fromkeys(self._silent))

    def forget_silent(self) -> None:
        """Begin anew: for a command that asks again and again."""
        self._silent.clear()

    def finish(self) -> None:
        """End the command. Raises NotAllError: a shard did not answer, all else was printed."""
        if self._silent:
            raise NotAllError(f"what is above is not all: {'; '.join(self.silent())}")

    def close(self) -> None:
        """Close the connections but the one that was asked first."""
        for broker in (self._known or {}).values():
            if broker is not self.asked:
                broker.close()

    def remember(self, number: int, items: Iterable[Any]) -> None:
        """Note which shard these are of."""
        for item in items:
            self._of[id(item)] = number
            self._kept.append(item)

    def _connections(self) -> dict[int, Broker]:
        if self._known is None:
            own, addresses = self.asked.described()
            chosen = chosen_shard()
            if len(addresses) < 2 or chosen is not None:
                self._known = {own: self.asked}
            else:
                self._known = {
                    number: self.asked if number == own else self._connect(address)
                    for number, address in addresses.items()
                }
        return self._known

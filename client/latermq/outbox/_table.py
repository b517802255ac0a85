"""The two tables of an outbox: its messages, and whose turn it is to relay them.

    id  topic  body  fields  token  added_at  parked_at  reason     `fields`: JSON, ASCII alone
    name  holder  until_ms                                          one row: the relay's lease

A row waits while `parked_at` is null. `token` is its dedup id at the broker, unless its message has
one: a row that is sent twice is stored once.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import uuid4

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from latermq.message import DEDUP_PROPERTY, Message

TOPIC_CHARACTERS_MAX: Final = 255
REASON_CHARACTERS_MAX: Final = 2_000
_LEASE: Final = "relay"
_MYSQL: Final = ("mysql", "mariadb")


class Row(NamedTuple):
    """A message that waits."""

    id: int
    topic: str
    body: bytes
    fields: str
    token: str

    def message(self) -> Message:
        """Return the message. Raises ValueError, TypeError, KeyError: no message of ours."""
        return message_of(self.body, self.fields, self.token)


class Parked(NamedTuple):
    """A message that was set aside.

    Fields:
        reason: the broker's, or why there is nothing to send.
    """

    id: int
    topic: str
    body: bytes
    reason: str
    added_at: datetime
    parked_at: datetime


def outbox_table(metadata: MetaData, name: str) -> Table:
    """Return the table of messages, which `metadata` has from then on."""
    known = metadata.tables.get(_full(metadata, name))
    if known is not None:
        return known
    return Table(
        name,
        metadata,
        Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
        Column("topic", String(TOPIC_CHARACTERS_MAX), nullable=False),
        Column("body", LargeBinary().with_variant(mysql.LONGBLOB(), *_MYSQL), nullable=False),
        Column(
            "fields", Text().with_variant(mysql.LONGTEXT(), *_MYSQL), nullable=False, default="{}"
        ),
        Column("token", String(32), nullable=False, default=lambda: uuid4().hex),
        Column(
            "added_at", DateTime(timezone=True), nullable=False, default=lambda: datetime.now(UTC)
        ),
        Column("parked_at", DateTime(timezone=True)),
        Column("reason", Text()),
        Index(f"ix_{name}_waiting", "parked_at", "id"),
    )


def lease_table(metadata: MetaData, name: str) -> Table:
    """Return the table of the relay's lease, which `metadata` has from then on."""
    known = metadata.tables.get(_full(metadata, name))
    if known is not None:
        return known
    return Table(
        name,
        metadata,
        Column("name", String(32), primary_key=True),
        Column("holder", String(32), nullable=False),
        Column("until_ms", BigInteger, nullable=False),
    )


def _full(metadata: MetaData, name: str) -> str:
    return f"{metadata.schema}.{name}" if metadata.schema else name


# --- a message as a row ---------------------------------------------------------------------


def values_of(topic: str, message: Message, now: datetime) -> dict[str, Any]:
    """Return a row's values; a `delay` counts from `now`."""
    due = message.due(now)
    fields: dict[str, Any] = {
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "message_group": message.message_group,
        "priority": message.priority,
        "lite_topic": message.lite_topic,
        "deliver_at": None if due is None else due.isoformat(),
        "dedup_id": message.dedup_id,
    }
    given = {name: value for name, value in fields.items() if value not in (None, [], {})}
    return {"topic": topic, "body": message.body, "fields": json.dumps(given)}


def message_of(body: bytes, fields: str, token: str) -> Message:
    """Return the message of a row. Raises ValueError, TypeError: the row has none."""
    given = json.loads(fields)
    if not isinstance(given, Mapping):
        raise TypeError(f"fields must be a JSON object, not {fields[:100]!r}")
    fields_of = dict(given)
    if DEDUP_PROPERTY not in given.get("properties", ()):
        fields_of.setdefault("dedup_id", token)
    if "deliver_at" in fields_of:
        fields_of["deliver_at"] = datetime.fromisoformat(fields_of["deliver_at"])
    return Message(bytes(body), **fields_of)


def order_of(row: Row) -> tuple[str, str | int]:
    """Return what a row keeps its order within: its topic and message group, or itself alone."""
    try:
        group = json.loads(row.fields).get("message_group")
    except (ValueError, AttributeError):
        group = None
    return (row.topic, row.id) if group is None else (row.topic, str(group))


# --- what a relay asks of the database, each in a transaction of its own ----------------------


class Turn:
    """The relay's lease on the outbox: one relay sends at a time.

    A relay whose process stood still may go on beside the next one: what both send is stored once,
    for it has one dedup id, and each message group goes in its order in both.
    """

    def __init__(
        self, messages: Table, leases: Table, lease_ms: int, now_ms: Callable[[], int]
    ) -> None:
        self._messages = messages
        self._leases = leases
        self._lease_ms = lease_ms
        self._now_ms = now_ms
        self._holder = uuid4().hex

    def take(
        self, connection: Connection, window: int, without: Collection[str]
    ) -> list[Row] | None:
        """Renew the lease, and read the oldest rows but of topics `without`; None: not our turn."""
        if not self._renew(connection):
            return None
        table = self._messages
        columns = (table.c[name] for name in Row._fields)
        waiting = select(*columns).where(table.c.parked_at.is_(None))
        if without:
            waiting = waiting.where(table.c.topic.not_in(sorted(without)))
        rows = connection.execute(waiting.order_by(table.c.id).limit(window))
        return [Row(*row) for row in rows]

    def settle(
        self,
        connection: Connection,
        sent: Sequence[int],
        parked: Mapping[int, str],
        waiting: Mapping[int, str],
    ) -> None:
        """Take away the rows that were sent, set aside those refused, note why others wait."""
        table = self._messages
        if sent:
            connection.execute(delete(table).where(table.c.id.in_(sent)))
        now = datetime.now(UTC)
        for reasons, parked_at in ((parked, now), (waiting, None)):
            for number, reason in reasons.items():
                connection.execute(
                    update(table)
                    .where(table.c.id == number)
                    .values(parked_at=parked_at, reason=_ascii(reason))
                )

    def leave(self, connection: Connection) -> None:
        """Give the lease up: another relay need not wait for its end."""
        leases = self._leases
        connection.execute(update(leases).where(leases.c.holder == self._holder).values(until_ms=0))

    def _renew(self, connection: Connection) -> bool:
        leases, now_ms = self._leases, self._now_ms()
        mine_or_over = (leases.c.holder == self._holder) | (leases.c.until_ms < now_ms)
        values = {"holder": self._holder, "until_ms": now_ms + self._lease_ms}
        taken: Any = connection.execute(
            update(leases).where(leases.c.name == _LEASE, mine_or_over).values(**values),
            execution_options={"preserve_rowcount": True},
        )
        if taken.rowcount:
            return True
        if connection.scalar(select(leases.c.name).where(leases.c.name == _LEASE)) is not None:
            return False
        try:
            with connection.begin_nested():
                connection.execute(insert(leases).values(name=_LEASE, **values))
        except IntegrityError:
            return False  # another relay was first
        return True


def parked_rows(connection: Connection, table: Table, limit: int) -> list[Parked]:
    """Return messages that were set aside, the oldest first."""
    columns = (table.c[name] for name in Parked._fields)
    chosen = select(*columns).where(table.c.parked_at.is_not(None)).order_by(table.c.id)
    return [Parked(*row) for row in connection.execute(chosen.limit(limit))]


def _ascii(text: str) -> str:
    return text[:REASON_CHARACTERS_MAX].encode("ascii", "backslashreplace").decode()

"""Whether a table of keys that is there compares them by their bytes, and how it is altered if not.

A database compares text as its collation says: `order-A` may be `order-a`, `x ` be `x`. The columns
that `columns` makes have no such rules; a table that somebody else made may.
"""

from collections.abc import Callable, Mapping
from typing import Final

from sqlalchemy import String, Table, text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Connection
from sqlalchemy.types import TypeEngine

from latermq.idempotency._keys import NAME_BYTES_MAX, NAME_CHARACTERS_MAX

NAMES: Final = ("group_name", "key")
BYTES_OF: Final = ("mysql", "mariadb")  # dialects whose columns hold a name's UTF-8

_MYSQL_COLUMNS: Final = text(
    "select column_name, data_type, coalesce(collation_name, '') from information_schema.columns"
    " where table_schema = coalesce(:schema, database()) and table_name = :name"
)
# By "C" or another deterministic collation two texts are equal when their bytes are.
_POSTGRESQL_COLUMNS: Final = text(
    "select a.attname, case when t.typname in ('varchar', 'text') and c.collisdeterministic"
    " then 'exact' else t.typname end, coalesce(c.collname, '')"
    " from pg_attribute a join pg_type t on t.oid = a.atttypid"
    " left join pg_collation c on c.oid = a.attcollation"
    " where a.attrelid = to_regclass(:name) and a.attnum > 0"
)


class InexactTableError(Exception):
    """The table's columns take different keys for one: work would be left out as done already.

    Fields:
        table: its name.
        statements: SQL that alters it; what it holds stays.
    """

    def __init__(self, table: str, wrong: str, statements: list[str]) -> None:
        advice = "; ".join(statements)
        super().__init__(
            f"the table {table} takes different keys for one: {wrong}. Alter it first: {advice}"
        )
        self.table = table
        self.statements = statements


def name_type() -> TypeEngine[str]:
    """Return the type of a group's and a key's column: equal only where the bytes are."""
    of_bytes = mysql.VARBINARY(NAME_BYTES_MAX)
    return String(NAME_CHARACTERS_MAX).with_variant(of_bytes, *BYTES_OF)


def value(dialect: str, name: str) -> str | bytes:
    """Return a name as a column of `name_type` takes it."""
    return name.encode() if dialect in BYTES_OF else name


def check_table(connection: Connection, table: Table) -> None:
    """Ask the database how the columns of names compare.

    Raises:
        InexactTableError: not by their bytes.
    """
    schema = _schema(connection, table)
    look = _LOOKS[connection.dialect.name]
    wrong = look(connection, table, schema)
    if wrong:
        quote = connection.dialect.identifier_preparer
        name = quote.quote(table.name)
        full = f"{quote.quote_schema(schema)}.{name}" if schema else name
        reasons = ", ".join(f"{column} is {kind}" for column, kind in wrong.items())
        statements = [each.format(table=full) for each in _MENDS[connection.dialect.name]]
        raise InexactTableError(table.name, reasons, statements)


def _schema(connection: Connection, table: Table) -> str | None:
    translated = connection.get_execution_options().get("schema_translate_map") or {}
    assert isinstance(translated, Mapping)
    schema = translated.get(table.schema, table.schema)
    return None if schema is None else str(schema)


def _mysql(connection: Connection, table: Table, schema: str | None) -> dict[str, str]:
    rows = connection.execute(_MYSQL_COLUMNS, {"schema": schema, "name": table.name})
    kinds = {_text(name): (_text(kind).lower(), _text(how)) for name, kind, how in rows}
    return {
        name: f"{kinds[name][0]} {kinds[name][1]}".strip()
        for name in NAMES
        if name in kinds and kinds[name][0] != "varbinary"
    }


def _postgresql(connection: Connection, table: Table, schema: str | None) -> dict[str, str]:
    quote = connection.dialect.identifier_preparer
    name = quote.quote(table.name)
    full = f"{quote.quote_schema(schema)}.{name}" if schema else name
    rows = {
        row[0]: (row[1], row[2]) for row in connection.execute(_POSTGRESQL_COLUMNS, {"name": full})
    }
    return {
        name: f"{rows[name][0]} {rows[name][1]}".strip()
        for name in NAMES
        if name in rows and rows[name][0] != "exact"
    }


def _sqlite(connection: Connection, table: Table, schema: str | None) -> dict[str, str]:
    rows = connection.execute(
        text(
            "select i.name, i.coll from pragma_index_list(:name, :schema) l"
            " join pragma_index_xinfo(l.name, :schema) i where l.origin = 'pk' and i.key = 1"
        ),
        {"name": table.name, "schema": schema or "main"},
    )
    return {name: str(how) for name, how in rows if name in NAMES and how != "BINARY"}


def _text(given: str | bytes) -> str:
    return given.decode() if isinstance(given, bytes) else given


_LOOKS: Final[Mapping[str, Callable[[Connection, Table, str | None], dict[str, str]]]] = {
    "mysql": _mysql,
    "mariadb": _mysql,
    "postgresql": _postgresql,
    "sqlite": _sqlite,
}
_TO_BYTES: Final = (
    "ALTER TABLE {table} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    f"ALTER TABLE {{table}} MODIFY group_name VARBINARY({NAME_BYTES_MAX}) NOT NULL, "
    f"MODIFY `key` VARBINARY({NAME_BYTES_MAX}) NOT NULL",
)
_MENDS: Final[Mapping[str, tuple[str, ...]]] = {
    "mysql": _TO_BYTES,
    "mariadb": _TO_BYTES,
    "postgresql": (
        f'ALTER TABLE {{table}} ALTER group_name TYPE varchar({NAME_CHARACTERS_MAX}) COLLATE "C", '
        f'ALTER "key" TYPE varchar({NAME_CHARACTERS_MAX}) COLLATE "C"',
    ),
    "sqlite": (
        "ALTER TABLE {table} RENAME TO latermq_done_before",
        "create the table anew, by create_all, and INSERT INTO {table} SELECT * FROM"
        " latermq_done_before",
    ),
}

"""The way that docs/ARCHITECTURE.md describes, walked with a made-up type of record."""

import json
import re
import struct
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from click.testing import CliRunner

from latermq_broker.config.config import Config
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import TopicType
from latermq_broker.engine.state.state import Applied, Appliers, EngineState, Stamp
from latermq_broker.store.files import RealFiles
from latermq_broker.store.records.kind import Bytes, Fields, Kind, Names
from latermq_broker.store.records.kinds import KINDS
from latermq_broker.store.records.record import Record, RecordType
from latermq_broker.store.store import Store
from latermq_cli.root import latermq
from support.engine_rig import SMALL_STORE, START_MS

ROOT: Final = Path(__file__).resolve().parents[3]
STEPS_MAX: Final = 10

#  NOTE   0      4
#         | topic| text, UTF-8
_NOTE: Final = struct.Struct("<I")
assert _NOTE.size == 4
NOTE: Final = RecordType.LIMIT  # its number is borrowed: the enum's members are fixed


class NotePayload(NamedTuple):
    topic_id: int
    text: str


def encode_note(note: NotePayload) -> list[Bytes]:
    return [_NOTE.pack(note.topic_id), note.text.encode()]


def decode_note(payload: Bytes) -> NotePayload:
    return NotePayload(_NOTE.unpack_from(payload)[0], str(payload[_NOTE.size :], "utf-8"))


def _note_text(record: Record, names: Names) -> Fields:
    note = decode_note(record.payload)
    return {"topic": names.topic(note.topic_id), "text": note.text}


NOTE_KIND: Final = Kind(NOTE, encode_note, decode_note, _note_text)


class NoteApplier:
    """NOTE: what was noted of a topic, and where that stands."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self.notes: list[tuple[str, str, int]] = []

    def appliers(self) -> Appliers:
        return {NOTE: Applied(self.note)}

    def note(self, note: NotePayload, at: Stamp) -> int:
        topic = self._state.catalog.topic_by_id(note.topic_id)
        assert topic is not None
        self.notes.append((topic.name, note.text, at.position))
        return at.position


def opened(directory: Path) -> Engine:
    store = Store.open(directory, SMALL_STORE, RealFiles(), START_MS)
    return Engine.open(store, Config(store=SMALL_STORE), START_MS)


def test_a_type_is_written_applied_replayed_and_dumped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = {**KINDS, NOTE: NOTE_KIND}
    engine = opened(tmp_path)
    topic = engine.topics.create("orders", TopicType.NORMAL, 0, START_MS)
    journal = engine._journal
    applier = NoteApplier(engine._state)
    journal.register(applier.appliers(), registry)

    position = journal.write(NOTE, NotePayload(topic.id, "first"), START_MS)
    engine.write()
    noted = [("orders", "first", position)]
    assert applier.notes == noted

    journal.replay([engine.store.log.read(position)])
    assert applier.notes == noted * 2
    engine.abandon()

    for number, kind in registry.items():
        monkeypatch.setitem(KINDS, number, kind)
    words = ["log", "dump", str(tmp_path), "--json", "--type", NOTE.name.lower()]
    (line,) = CliRunner().invoke(latermq, words).stdout.splitlines()
    dumped = json.loads(line)
    assert (dumped["position"], dumped["topic"], dumped["text"]) == (
        position, "orders", "first",
    )  # fmt: skip


def test_the_page_is_short_and_names_what_exists() -> None:
    page = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    section = page.partition("## Adding a record type\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. ", section, re.MULTILINE)
    assert 5 <= len(steps) <= STEPS_MAX
    named = re.findall(r"`([\w/]+/\w+\.py)`", section)
    assert len(named) >= len(steps)
    for name in named:
        below = ROOT if name.startswith("tests/") else ROOT / "broker/latermq_broker"
        assert (below / name).is_file(), name

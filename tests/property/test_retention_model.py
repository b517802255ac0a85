"""The engine's model with time that goes by: segments fill, grow old and go; the disk fills.

Messages expire when they are old enough and not before; what waits, is held or dead goes on when
its segment goes. A pass of retention takes many ticks, and anything may happen in between.
"""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from latermq_broker.engine.engine import Engine
from latermq_broker.engine.model import Outgoing
from latermq_broker.store.files import Space
from property.test_engine_model import CONFIG, GROUPS, TOPIC, EngineMachine
from support.engine_rig import short_store

pytestmark = pytest.mark.usefixtures("small_runs")

RETENTION_MS = 5_000
LETTERS_MS = 9_000
STORE = short_store(retention_ms=RETENTION_MS, dead_letter_retention_ms=LETTERS_MS)
FILLER = Outgoing(topic="filler", rest=bytes(1_000), sys=b"f", message_id="f")


class RetentionMachine(EngineMachine):
    CONFIG = replace(CONFIG, store=STORE)

    def __init__(self) -> None:
        super().__init__()
        self.after_tick = self.note_expired

    def note_expired(self, engine: Engine) -> None:
        """What is gone must have been old enough."""
        here = {topic: names(engine, topic) for topic in (TOPIC, *map("%DLQ%{}".format, GROUPS))}
        for (group, name), held in self.held.items():
            if held.state == "fresh" and name in self.fired:
                if name not in here[TOPIC] and name not in self.cancelled:
                    assert self.now_ms - self.seen_ms[name] >= RETENTION_MS
                    held.state = "expired"
            elif held.state == "dead" and name not in here[f"%DLQ%{group}"]:
                assert self.now_ms - held.dead_ms >= LETTERS_MS
                held.state = "expired"

    @rule(count=st.integers(1, 40))
    def others_send(self, count: int) -> None:
        """What fills segments."""
        if not self.engine.store.disk.full:
            for _ in range(count):
                self.engine.send([FILLER], self.now_ms)

    @rule(free_percent=st.sampled_from([2, 8, 50, 50]))
    def look_at_disk(self, free_percent: int) -> None:
        total = 100 * STORE.segment_bytes
        self.engine.store.disk.look(Space(total * free_percent // 100, total))

    @rule(seconds=st.integers(1, 12))
    def seconds_pass(self, seconds: int) -> None:
        for _ in range(seconds):
            self.time_passes(1_000)


def names(engine: Engine, topic_name: str) -> set[str]:
    """Messages in the queues of a topic."""
    topic = engine.catalog.topic(topic_name)
    found: set[str] = set()
    for ends in engine.topics.ends(topic) if topic is not None else ():
        rows = engine.queues.read(
            topic_name, "", ends.queue_id, ends.earliest_offset, ends.next_offset,
            rows_max=10_000, bytes_max=1 << 30,
        )  # fmt: skip
        found.update(row.sys.decode() for row in rows)
    return found


TestRetention = RetentionMachine.TestCase
TestRetention.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)

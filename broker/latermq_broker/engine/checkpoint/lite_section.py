"""What checkpoints keep of lite topics.

    parent   0      4             8             16    24
             | topic| reader count| topic count | end | its topics, its readers
    topic    0     8            16  20          21
             | key | written_ms | n | name size | name | offsets 8 x n
    reader   0      4    8       16  24
             | group| pad| floor | n | (key u64, next offset u64) x n

Little-endian. What may be received follows from it.
"""

import struct
from typing import Final

from latermq_broker.delivery.order.lite import LiteParent, LiteTopic
from latermq_broker.engine.state.state import EngineState, lite_reader

_PARENT: Final = struct.Struct("<IIQQ")
assert _PARENT.size == 24
_TOPIC: Final = struct.Struct("<QQIB")
assert _TOPIC.size == 21
_READER: Final = struct.Struct("<IIQQ")
assert _READER.size == 24


def pack_lites(state: EngineState) -> bytes:
    parts: list[bytes] = []
    for topic_id, parent in sorted(state.lites.items()):
        parts.append(_PARENT.pack(topic_id, len(parent.readers), len(parent.topics), parent.end))
        for key, topic in parent.topics.items():
            name = topic.name.encode()
            parts.append(_TOPIC.pack(key, topic.written_ms, len(topic), len(name)))
            parts += (name, struct.pack(f"<{len(topic)}Q", *topic))
        for group_id, reader in sorted(parent.readers.items()):
            parts.append(_READER.pack(group_id, 0, reader.floor, len(reader.cursors)))
            flat = [number for pair in reader.cursors.items() for number in pair]
            parts.append(struct.pack(f"<{len(flat)}Q", *flat))
    return b"".join(parts)


def restore_lites(state: EngineState, section: bytes) -> None:
    """Replace the lite topics that are there: replay without a state does not see all of them."""
    state.lites.clear()
    at = 0
    while at < len(section):
        topic_id, reader_count, topic_count, end = _PARENT.unpack_from(section, at)
        at += _PARENT.size
        parent = state.lites[topic_id] = LiteParent()
        parent.end = end
        for _ in range(topic_count):
            key, written_ms, count, size = _TOPIC.unpack_from(section, at)
            at += _TOPIC.size
            topic = LiteTopic(str(section[at : at + size], "utf-8"))
            at += size
            for offset in struct.unpack_from(f"<{count}Q", section, at):
                topic.add(offset)
            at += 8 * count
            topic.written_ms = written_ms
            parent.topics[key] = topic
        for _ in range(reader_count):
            group_id, _, floor, count = _READER.unpack_from(section, at)
            at += _READER.size
            flat = struct.unpack_from(f"<{2 * count}Q", section, at)
            at += 16 * count
            reader = parent.reader(group_id)
            reader.floor = floor
            reader.cursors = dict(zip(flat[::2], flat[1::2], strict=True))
    for subscription in state.subscriptions.values():
        restored = lite_reader(state, subscription)
        if restored is not None and subscription.gate is not None:
            for key in subscription.gate.runnable:
                restored.may_go(key, retries=True)

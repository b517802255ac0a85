"""What checkpoints keep of consumers that filter differently.

    ahead    0      4      8      10   12        16
             | group| topic| queue| pad| spans n| first and end of each, u64 pairs
    wanted   JSON [[group, topic, [filter, …]], …] of the groups not all of whose consumers want
             everything

Little-endian.
"""

import json
import struct
from typing import Final

from latermq_broker.engine.state.state import EngineState

_AHEAD: Final = struct.Struct("<IIHxxI")
assert _AHEAD.size == 16
_SPAN: Final = struct.Struct("<QQ")


def pack_ahead(state: EngineState) -> bytes:
    parts: list[bytes] = []
    for (group_id, topic_id), subscription in sorted(state.subscriptions.items()):
        for queue_id, spans in sorted(subscription.ahead.items()):
            parts.append(_AHEAD.pack(group_id, topic_id, queue_id, len(spans)))
            parts += [_SPAN.pack(*span) for span in spans]
    return b"".join(parts)


def restore_ahead(state: EngineState, section: bytes) -> None:
    at = 0
    while at < len(section):
        group_id, topic_id, queue_id, count = _AHEAD.unpack_from(section, at)
        at += _AHEAD.size
        subscription = state.subscription(group_id, topic_id)
        for _ in range(count):
            start, end = _SPAN.unpack_from(section, at)
            at += _SPAN.size
            subscription.pass_ahead(queue_id, start, end)


def pack_wanted(state: EngineState) -> bytes:
    wanted = [
        [*key, subscription.wanted]
        for key, subscription in sorted(state.subscriptions.items())
        if subscription.wanted
    ]
    return json.dumps(wanted, separators=(",", ":")).encode() if wanted else b""


def restore_wanted(state: EngineState, section: bytes) -> None:
    for group_id, topic_id, filters in json.loads(section or b"[]"):
        state.subscription(group_id, topic_id).wanted = tuple(filters)

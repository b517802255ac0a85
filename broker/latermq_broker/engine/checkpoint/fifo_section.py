"""What checkpoints keep of message groups: what is held, what is parked.

    order_keys   0            8          16     for each delivery in a section `deliveries` that has
                 | delivery id| order key|      one; only read
    fifo         0      4      8          16     18   20         24             28
                 | group| topic| order key| queue| pad| held n   | parked m     | held offsets 8 x n
                 | letters 12 x m: dead-letter topic u32, offset u64

Little-endian. Whether a message group is blocked follows from its deliveries.
"""

import struct
from typing import Final

from latermq_broker.engine.state.state import EngineState

_ORDER_KEY: Final = struct.Struct("<QQ")
_GROUP: Final = struct.Struct("<IIQHxxII")
assert _GROUP.size == 28
_LETTER: Final = struct.Struct("<IQ")
assert _LETTER.size == 12
_NO_QUEUE: Final = 0xFFFF  # nothing is held


def unpack_order_keys(section: bytes) -> dict[int, int]:
    """Order keys by delivery id."""
    return dict(_ORDER_KEY.iter_unpack(section))


def pack_fifo(state: EngineState) -> bytes:
    parts: list[bytes] = []
    for (group_id, topic_id), subscription in sorted(state.subscriptions.items()):
        if subscription.gate is None:
            continue
        for key, group in sorted(subscription.gate.groups.items()):
            held, letters = list(group.held), sorted(group.parked)
            if not (held or letters):
                continue
            queue_id = group.queue_id if held else _NO_QUEUE
            sizes = len(held), len(letters)
            parts.append(_GROUP.pack(group_id, topic_id, key, queue_id, *sizes))
            parts.append(struct.pack(f"<{len(held)}Q", *held))
            parts += [_LETTER.pack(*letter) for letter in letters]
    return b"".join(parts)


def restore_fifo(state: EngineState, section: bytes) -> None:
    """Restore message groups into a state that has its deliveries back."""
    at = 0
    while at < len(section):
        group_id, topic_id, key, queue_id, held_count, parked_count = _GROUP.unpack_from(
            section, at
        )
        at += _GROUP.size
        gate = state.subscription(group_id, topic_id).ordered()
        for offset in struct.unpack_from(f"<{held_count}Q", section, at):
            gate.hold(key, queue_id, offset)
        at += 8 * held_count
        for _ in range(parked_count):
            letter: tuple[int, int] = _LETTER.unpack_from(section, at)
            at += _LETTER.size
            state.parking[letter] = (group_id, topic_id, key)
            gate.park(key, letter)

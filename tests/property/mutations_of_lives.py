"""Faults of lives of a log, and of what is lent in them, for `mutations.py`: fault, who finds it,
file, text now, text then."""

from typing import Final

LIVES: Final = "tests/unit/engine/test_other_lives.py"
UNREAD: Final = "tests/unit/engine/test_lent_unread.py"

OF_LIVES: Final[tuple[tuple[str, str, str, str, str], ...]] = (
    (
        "lives of copies of a log give equal receipts",
        LIVES,
        "engine/engine.py",
        "first_id = random_bits(files, FIRST_ID_BITS) // FIRST_ID_STEP * FIRST_ID_STEP",
        "first_id = 0",
    ),
    (
        "what is lent and cannot be read stays lent, in nobody's hands",
        UNREAD,
        "engine/receive/lanes.py",
        "                self._give_back(taken[index:], receive.now_ms)\n",
        "",
    ),
    (
        "a life that begins without room is never written",
        LIVES,
        "engine/journal/journal.py",
        "        if self._life is not None and type is not RecordType.LIFE:\n"
        "            self._write_life(now_ms)\n",
        "",
    ),
    (
        "an open transaction is named by its position alone",
        LIVES,
        "engine/views/pending.py",
        "half is not None and id_bits in (-1, half.id_hash & ID_BITS_MASK)",
        "half is not None",
    ),
    (
        "what two copies of a log lend again has one receipt in both",
        LIVES,
        "engine/engine.py",
        "random_bits(files, STRIDE_BITS) | 1)",
        "1)",
    ),
    (
        "a checkpoint forgets the broker's lives",
        LIVES,
        "engine/checkpoint/snapshot.py",
        'json.loads(sections.get("lives", b"[]"))',
        "[]",
    ),
    (
        "a checkpoint forgets this life's stride of generations",
        LIVES,
        "engine/checkpoint/snapshot.py",
        'counters.get("stride", 1)',
        "1",
    ),
)

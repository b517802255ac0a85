"""A few rounds of `crash.backup_drill`: backups under load and kills have all that was promised."""

import random
from pathlib import Path

from crash.backup_drill import drilled
from crash.test_kill import FLUSHES, SEED


def test_what_was_acknowledged_before_a_backup_is_in_it(tmp_path: Path) -> None:
    print(f"LATERMQ_CRASH_SEED={SEED}")  # shown when it fails
    rng = random.Random(f"{SEED} backup")
    drill = drilled(tmp_path, rng.choice(FLUSHES), rng, 3)
    print(drill.fates, drill.made, drill.messages)
    assert drill.messages

"""Faults of what a receive gives, as `mutations` puts them back.

Each: the fault, who looks for it, the file of the broker, its text, the text put there.
"""

from typing import Final

FILTERS: Final = "property.test_filters_model:FiltersMachine"
PRIORITIES: Final = "property.test_priority_model:PriorityMachine"

FILTER_FAULTS: Final = (
    (
        "a receive consumes what another consumer of its group wants",
        FILTERS,
        "engine/receive/unread.py",
        "elif passes and not others(entry.tag_hash, entry.position):",
        "elif passes:",
    ),
    (
        "a receive of a FIFO group consumes what another consumer wants",
        FILTERS,
        "engine/receive/ordered_lane.py",
        "        if not receive.others_want(entry):\n            receive.scan_budget.count_entry()",
        "        if True:\n            receive.scan_budget.count_entry()",
    ),
    (
        "a receive that waits consumes unseen what it does not want",
        FILTERS,
        "engine/receive/lanes.py",
        "passes=strict or not request.waits,",
        "passes=True,",
    ),
    (
        "what was given behind messages of another consumer is given again",
        FILTERS,
        "engine/journal/apply_ahead.py",
        "            subscription.pass_ahead(queue_id, row.offset, row.offset + count)\n",
        "",
    ),
    (
        "a checkpoint forgets what was given behind messages of another consumer",
        FILTERS,
        "engine/checkpoint/snapshot.py",
        '"ahead": pack_ahead(state),',
        '"ahead": b"",',
    ),
    (
        "a checkpoint forgets what the consumers of a group want",
        FILTERS,
        "engine/checkpoint/snapshot.py",
        '"wanted": pack_wanted(state),',
        '"wanted": b"",',
    ),
    (
        "how far filters have looked counts as read until a restart",
        FILTERS,
        "engine/state/state.py",
        "read = max(queue.first, subscription.cursors.get(queue_id, 0))",
        "read = max(queue.first, subscription.cursors.get(queue_id, 0))\n"
        "        read = max(read, subscription.looked.get((None, queue_id), 0))",
    ),
    (
        "lower priorities starve",
        PRIORITIES,
        "engine/receive/lanes.py",
        "                taken += self._take_owed(receive, topic, mine)\n",
        "                pass\n",
    ),
)

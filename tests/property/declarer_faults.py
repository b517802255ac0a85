"""Faults of who declares schedules, as `mutations` puts them back; see `filter_faults`."""

from typing import Final

DECLARERS: Final = "property.test_declarers_model:DeclarersMachine"
DECLARER_FAULTS: Final = (
    (
        "who declares schedules is in no checkpoint",
        DECLARERS,
        "engine/checkpoint/snapshot.py",
        '    state.declarations.restore(sections.get("declarations", b""))\n',
        "",
    ),
    (
        "a worker that ends still declares its schedules",
        DECLARERS,
        "engine/catalog/declarers.py",
        "        self._look_by(now_ms)\n        self.tick(now_ms)\n",
        "",
    ),
    (
        "what a worker declared before a restart is declared by nobody at once",
        DECLARERS,
        "engine/catalog/declarers.py",
        "if claim in self._before and self._until_ms(began_ms) > now_ms:",
        "if False:",
    ),
    (
        "pruning removes what another app declares, too",
        DECLARERS,
        "engine/catalog/declarers.py",
        "            elif len(ours) < len(apps):\n",
        "            elif False:\n",
    ),
    (
        "a schedule that is made anew is declared by those who had its name before",
        DECLARERS,
        "engine/journal/apply_schedules.py",
        "            self._state.declarations.forget(name)\n",
        "",
    ),
)

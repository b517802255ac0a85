"""Faults that were mended, put back one at a time: the models must find each.

    make mutations          a table: fault, model, examples needed

A fault is a replacement of text in a copy of the broker; a text that is not there any more says so.
The first failure ends the search, nothing is shrunk.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
ENGINE: Final = "property.test_engine_model:EngineMachine"
ANEW: Final = "property.test_anew_model:AnewMachine"
EXAMPLES_MAX: Final = 600
SEED: Final = 1


class Mutation(NamedTuple):
    fault: str
    model: str
    file: str  # of the broker
    now: str
    then: str


MUTATIONS: Final = (
    Mutation(
        "a drained stop ends the renewal of leases not yet renewed",
        ENGINE,
        "engine/outcome/due.py",
        "if not delivery.renewals and self._state.store.cut_offs.concern(delivery.leased_ms):",
        "if not delivery.renewals and delivery.leased_ms < self.opened_ms:",
    ),
    Mutation(
        "a retry that a changed filter does not want blocks its message group for ever",
        ENGINE,
        "engine/receive/ordered_lane.py",
        "or not self._waited(delivery, wish.now_ms):",
        "or True:",
    ),
    Mutation(
        "GetOffset tells a number past what is held",
        ENGINE,
        "engine/receive/queues.py",
        "        return first_unread(self._state, subscription, queue_id)",
        "        return self._state.cursor(subscription, queue_id)",
    ),
    Mutation(
        "UpdateOffset of the number that GetOffset told loses what is held",
        ENGINE,
        "engine/journal/apply_catalog.py",
        "subscription.gate.trim(queue_id, offset)",
        "subscription.gate.forget_held(queue_id)",
    ),
    Mutation(
        "what is held behind a parked message expires",
        ENGINE,
        "engine/retention/withheld.py",
        "in self._state.subscriptions.items():",
        "in list(self._state.subscriptions.items())[:0]:",
    ),
    Mutation(
        "a delayed message whose time was moved cannot be recalled",
        ENGINE,
        "engine/views/pending_place.py",
        "    moved = state.timers_moved.wait_of(position)\n",
        "    moved = None\n",
    ),
    Mutation(
        "a redrive keeps the queue of the topic that was",
        ANEW,
        "engine/outcome/dead_letters.py",
        "        if origin.id != head.origin_topic_id:\n",
        "        if origin.id < 0:\n",
    ),
    Mutation(
        "a redrive is accepted for a group made anew as lite",
        ANEW,
        "engine/outcome/dead_letters.py",
        "        _require_readable(owner, origin, head, record)\n",
        "",
    ),
    Mutation(
        "a lite parent made anew has no reader before its first message",
        ANEW,
        "engine/journal/apply_deliveries.py",
        "                state.lites.setdefault(redrive.topic_id, LiteParent())\n",
        "                pass\n",
    ),
    Mutation(
        "UpdateOffset backwards leaves leases alive",
        ENGINE,
        "engine/journal/apply_catalog.py",
        "            if offset.act == OFFSET_REWIND:\n",
        "            if offset.act < 0:\n",
    ),
    Mutation(
        "what is done is in no checkpoint: a repeated ack is refused",
        ENGINE,
        "engine/checkpoint/snapshot.py",
        '    state.recently_done.restore(sections.get("done", b""))\n',
        "",
    ),
    Mutation(
        "a forward after a nack adds an attempt that never was",
        ENGINE,
        "engine/outcome/attempts.py",
        "        if delivery.state is State.LEASED:\n            rejected",
        "        if delivery.state:\n            rejected",
    ),
    Mutation(
        "a letter of a reader of %DLQ% loses its redrives",
        ANEW,
        "engine/outcome/attempts.py",
        "        if before.dlq_topic_id == topic.id:\n",
        "        if topic.internal:\n",
    ),
    Mutation(
        "a pull of %DLQ% gives redriven and dropped letters",
        ANEW,
        "engine/receive/queues.py",
        "letters_of(self._state.dead, topic.id) if topic.internal else None",
        "None",
    ),
)


def main() -> int:
    missed = 0
    for mutation in MUTATIONS:
        with tempfile.TemporaryDirectory() as directory:
            found = _hunted(mutation, Path(directory))
        missed += found.startswith("not")
        print(f"| {mutation.fault} | {mutation.model.split(':')[1]} | {found} |", flush=True)
    return 1 if missed else 0


def _hunted(mutation: Mutation, directory: Path) -> str:
    shutil.copytree(ROOT / "broker", directory / "broker")
    path = directory / "broker" / "latermq_broker" / mutation.file
    text = path.read_text()
    if text.count(mutation.now) != 1:
        return "not there: the text has changed"
    path.write_text(text.replace(mutation.now, mutation.then))
    paths = [directory / "broker", ROOT / "client", ROOT / "proto", ROOT / "tests"]
    hunt = subprocess.run(
        [sys.executable, "-m", "property.hunt", mutation.model, str(SEED), str(EXAMPLES_MAX)],
        env={"PYTHONPATH": ":".join(map(str, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    return hunt.stdout.strip() or f"not run: {hunt.stderr[-300:]}"


if __name__ == "__main__":
    sys.exit(main())

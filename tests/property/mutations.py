"""Faults that were mended, put back one at a time: the models must find each, and the simulated
brokers of `make crash` those of which they can see.

What no model has is found by a test of its own: a number that the configuration let pass, two ids
with one hash, a step of the wall clock, a disk that is full for one step of a tick, the files of
the checkpoint before the newest.

    make mutations          a table: fault, who looks for it, after how much, how it shows

A fault is a replacement of text in a copy of the broker; a text that is not there any more says so.
The first failure ends the search, nothing is shrunk.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from property.declarer_faults import DECLARER_FAULTS
from property.filter_faults import FILTER_FAULTS
from property.mutations_of_lives import OF_LIVES
from property.mutations_of_time import OF_TIME

ROOT: Final = Path(__file__).parents[2]
ENGINE: Final = "property.test_engine_model:EngineMachine"
ANEW: Final = "property.test_anew_model:AnewMachine"
SCHEDULES: Final = "property.test_schedules_model:ScheduleMachine"
SLAB: Final = "property.test_slab_model:SlabMachine"
AGES: Final = "property.test_ages_model:AgesMachine"
SIMULATED: Final = "simulation"
SECOND_VERBS: Final = "tests/unit/engine/test_second_verbs.py"
IDENTITY: Final = "tests/unit/engine/test_identity.py"
REWOUND: Final = "tests/unit/engine/test_redrive_rewound.py"
HELD_LAG: Final = "tests/unit/engine/test_held_lag.py"
CHANGED_FILTER: Final = "tests/unit/engine/test_changed_filter.py"
GONE: Final = "tests/unit/engine/test_gone_clients.py"
BOUNDS: Final = "tests/unit/edge/test_config_bounds.py"
RIGHTS: Final = "tests/property/test_rights_chains.py"
EXAMPLES_MAX: Final = 600
HISTORIES_MAX: Final = 60
SEEDS: Final = (1, 2, 3)  # one after the other, until it is found


class Mutation(NamedTuple):
    fault: str
    model: str  # or a file of tests
    file: str  # of the broker
    now: str
    then: str
    simulated: bool = False  # the crash tests' ledger sees it, too


MUTATIONS: Final = (
    *(Mutation(*each) for each in FILTER_FAULTS),
    *(Mutation(*each) for each in DECLARER_FAULTS),
    Mutation(
        "who may redrive reads the letters in a topic of its own",
        RIGHTS,
        "services/auth/access_rules.py",
        "        origin_topic == to_topic\n",
        "        True\n",
    ),
    Mutation(
        "who may send to a topic reads the messages of its schedules",
        RIGHTS,
        "services/v1/v1_schedules.py",
        "if user is None or meets(user, reading(schedule.topic)):",
        "if True:",
    ),
    Mutation(
        "limits name other users, groups and clients",
        RIGHTS,
        "services/v1/v1_limits.py",
        "limit for limit in self._limits.table.all() if self._concerns(user, limit)",
        "limit for limit in self._limits.table.all()",
    ),
    Mutation(
        "what stands behind a message that is given again still counts as ready",
        HELD_LAG,
        "delivery/order/fifo.py",
        "        self.behind_count += group.count_behind()\n\n    def ease",
        "\n    def ease",
    ),
    Mutation(
        "the index by message keeps deliveries that ended together",
        SLAB,
        "delivery/leases/leases.py",
        "        slab.origins.remove(rows)\n",
        "",
    ),
    Mutation(
        "a lease is renewed though nobody knows whether its reply arrived",
        ENGINE,
        "engine/outcome/due.py",
        "        if delivery.bounded:\n",
        "        if False:\n",
    ),
    Mutation(
        "a lease whose reply may not have arrived ends as one that its client let pass",
        GONE,
        "engine/outcome/due.py",
        "        if delivery.lost or hearing.has_left(delivery.client_id):\n",
        "        if hearing.has_left(delivery.client_id):\n",
    ),
    Mutation(
        "an attempt id that comes again is answered with other messages",
        ENGINE,
        "engine/receive/lanes.py",
        "self._replies.again(receive) if request.attempt_id else []",
        "self._replies.again(receive) if group.lite_parent else []",
    ),
    Mutation(
        "a drained stop ends the renewal of leases not yet renewed",
        ENGINE,
        "engine/outcome/due.py",
        "if not delivery.renewals and self._state.store.cut_offs.concern(delivery.leased_ms):",
        "if not delivery.renewals and delivery.leased_ms < self.opened_ms:",
        simulated=True,
    ),
    Mutation(
        "a retry that a changed filter does not want blocks its message group for ever",
        CHANGED_FILTER,
        "engine/receive/ordered_lane.py",
        "or not self._waited(delivery, receive.now_ms)",
        "or True",
        simulated=True,
    ),
    Mutation(
        "GetOffset tells a number past what is held",
        ENGINE,
        "engine/receive/queues.py",
        "        return first_unread(self._state, subscription, queue_id)",
        "        return self._state.cursor(subscription, self._state.queue(topic.id, queue_id))",
        simulated=True,
    ),
    Mutation(
        "UpdateOffset of the number that GetOffset told loses what is held",
        ENGINE,
        "engine/journal/apply_catalog.py",
        "subscription.gate.trim(queue_id, offset)",
        "subscription.gate.forget_held(queue_id)",
        simulated=True,
    ),
    Mutation(
        "what is held behind a parked message expires",
        ENGINE,
        "engine/retention/withheld.py",
        "            if gate is None:\n                continue\n",
        "            if gate is None or gate:\n                continue\n",
    ),
    Mutation(
        "what stands behind a held message expires if no receive looked at it",
        AGES,
        "engine/retention/withheld.py",
        "            if not key or group is None or not group.blocked:\n",
        "            if key >= 0:\n",
    ),
    Mutation(
        "messages go at the shortest age of all topics",
        AGES,
        "engine/retention/trimming.py",
        "            count = self._times.count_older(self._ages.read_ms(topic), self.now_ms)\n",
        "            count = self._times.count_older(self._ages.shortest_ms, self.now_ms)\n",
    ),
    Mutation(
        "a segment goes with the messages that their topic keeps longer",
        AGES,
        "engine/retention/roll_forward.py",
        "                    own = not entry.flags and entry.length\n",
        "                    own = 0\n",
    ),
    Mutation(
        "what every group has read goes before its age though the disk has room",
        AGES,
        "engine/retention/retention.py",
        "            self._state.store.disk.low\n            and bool",
        "            self._state.store.disk is not None\n            and bool",
    ),
    Mutation(
        "what goes before its age is not counted",
        AGES,
        "engine/retention/trimming.py",
        "            self.entries_expired_early += count\n",
        "            self.entries_expired_early += 0\n",
    ),
    Mutation(
        "what has its age stays in its topic as long as something else keeps the files",
        AGES,
        "engine/retention/trimming.py",
        "            if not age_ms or not has_own(topic):\n",
        "            if age_ms >= 0:\n",
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
        simulated=True,
    ),
    Mutation(
        "a lite parent made anew has no reader before its first message",
        ANEW,
        "engine/journal/apply_deliveries.py",
        "                state.lites.setdefault(redrive.topic_id, LiteParent())\n",
        "                pass\n",
    ),
    Mutation(
        "two letters of one message are redriven into a topic made anew",
        ANEW,
        "engine/outcome/dead_letters.py",
        "        elif in_hand(self._state, owner.id, message, topic.id) is not None:\n",
        "        elif stands and in_hand(self._state, owner.id, message) is not None:\n",
    ),
    Mutation(
        "UpdateOffset backwards loses what was redriven of a topic that had the name before",
        ANEW,
        "engine/receive/queues.py",
        "        redriven = self._redriven_from(subscription, queue_id, offset)\n",
        "        redriven = iter(())\n",
    ),
    Mutation(
        "a letter of a life in a topic made anew says that it is of that topic",
        ANEW,
        "engine/outcome/attempts.py",
        "        message = delivery.origin\n",
        "        message = type(delivery.origin)(\n"
        "            topic.id, delivery.queue_id, delivery.offset\n"
        "        )\n",
    ),
    Mutation(
        "a copy in another topic is told, once its entry expired, to be the letter's message",
        IDENTITY,
        "engine/outcome/attempts.py",
        "        message = delivery.origin\n",
        "        from latermq_broker.engine.state.standing import origin_told_by_letter as told\n"
        "        message = delivery.origin\n"
        "        if message.offset < state.queue(topic.id, message.queue_id).first:\n"
        "            message, _ = told(state, delivery.position, topic.id) or (message, 0)\n",
    ),
    Mutation(
        "a redrive does not say of which message it is",
        IDENTITY,
        "engine/journal/apply_deliveries.py",
        "            origin_topic_id=origin.topic_id,\n",
        "            origin_topic_id=redrive.topic_id,\n",
    ),
    Mutation(
        "which message a delivery is of is in no checkpoint",
        IDENTITY,
        "delivery/section.py",
        "    return DeliveryKey._make((*fields[:3], *fields[4:], fields[3]))\n",
        "    return DeliveryKey._make((*fields[:3], *fields[4:7], 0, 0, 0))\n",
    ),
    Mutation(
        "a story tells of a letter from before the group was moved back",
        REWOUND,
        "engine/views/message_life.py",
        "letter is None or self._given_anew(subscription, message, letter)",
        "letter is None",
    ),
    Mutation(
        "a story tells of a redrive, though the group was moved back",
        REWOUND,
        "engine/views/message_life.py",
        "        if delivery is not None and delivery.redrive:\n",
        "        if delivery is not None and letter is not None:\n",
    ),
    Mutation(
        "where a group was moved back to is in no checkpoint",
        REWOUND,
        "engine/checkpoint/snapshot.py",
        '        "rewinds": _pack_rewinds(state),\n',
        '        "rewinds": b"",\n',
    ),
    Mutation(
        "UpdateOffset backwards leaves leases alive",
        ENGINE,
        "engine/journal/apply_catalog.py",
        "            if offset.act == OFFSET_REWIND:\n",
        "            if offset.act < 0:\n",
        simulated=True,
    ),
    Mutation(
        "what is done is in no checkpoint: a repeated ack is refused",
        ENGINE,
        "engine/checkpoint/snapshot.py",
        '    state.recently_done.restore(sections.get("done", b""))\n',
        "",
    ),
    Mutation(
        "dedup ids are in no checkpoint",
        ENGINE,
        "engine/checkpoint/snapshot.py",
        '    state.dedup.restore(sections.get("dedup", b""))\n',
        "",
    ),
    Mutation(
        "a user's share of dedup ids is not given back when they are over",
        ENGINE,
        "engine/state/dedup_ids.py",
        "        count_up(self.of_users, dedup_made_by(block, at + len(key)), at - end)\n",
        "",
    ),
    Mutation(
        "schedules are in no checkpoint",
        SCHEDULES,
        "engine/checkpoint/snapshot.py",
        '    state.schedules.restore(sections.get("schedules", b""))\n',
        "",
    ),
    Mutation(
        "a schedule that is resumed sends what was due while it was paused",
        SCHEDULES,
        "engine/send/scheduled_sends.py",
        "next_ms = self._first_after(schedule, wall_ms)\n        return",
        "next_ms = self._first_after(schedule, schedule.last_ms or wall_ms)\n        return",
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
        "        if not delivery.redrive and before.dlq_topic_id == delivery.topic_id:\n",
        "        if self._state.catalog.topic_by_id(delivery.topic_id).internal:\n",
    ),
    Mutation(
        "a pull of %DLQ% gives redriven and dropped letters",
        ANEW,
        "engine/receive/queues.py",
        "letters_of(self._state.dead, topic.id) if topic.internal else None",
        "None",
    ),
    Mutation(
        "a redriven message goes behind those of its message group that wait again",
        ENGINE,
        "delivery/order/fifo.py",
        "        insort(self._group(key).live, (offset, delivery_id))\n        self._settle(key)",
        "        self._group(key).live.append((offset, delivery_id))\n        self._settle(key)",
        simulated=True,
    ),
    Mutation(
        "a delay level of 2^32 ms passes, and ends the broker in a tick",
        BOUNDS,
        "config/number_bounds.py",
        "LEVEL_MS_MAX: Final = 49 * 86_400_000",
        "LEVEL_MS_MAX: Final = (1 << 32) + 1",
    ),
    Mutation(
        "a lease of 2^32 ms passes, and ends the broker when it is written",
        BOUNDS,
        "config/number_bounds.py",
        '    "delivery.invisible_ms_max": U32_MAX,\n',
        "",
    ),
    Mutation(
        "the story of a message tells what a letter of the topic that was does",
        SECOND_VERBS,
        "engine/state/standing.py",
        "        if delivery.origin == message:\n",
        "        if delivery:\n",
    ),
    Mutation(
        "of two ids with one hash the other one is redriven",
        SECOND_VERBS,
        "engine/outcome/attempts.py",
        '    return message_id(stored_slices(record)[1]) in (wanted, "")\n',
        "    return True\n",
    ),
    Mutation(
        "a step of a tick that finds no room keeps the others from theirs",
        SECOND_VERBS,
        "engine/engine.py",
        "                full = full or error\n",
        "                raise error\n",
    ),
    Mutation(
        "a wall clock set back by less than 20 ms is not followed",
        "tests/unit/test_clock.py",
        "clock.py",
        "            not -BACK_NS < jump_ns < JUMP_NS\n",
        "            not -JUMP_NS < jump_ns < JUMP_NS\n",
    ),
    Mutation(
        "a timer run is believed under another's name",
        "tests/unit/engine/test_delivery.py",
        "schedule/run_file.py",
        "        if written_as != (0 if format_ == NAMELESS_FORMAT else _hash_of(name)):\n",
        "        if written_as < 0:\n",
    ),
    Mutation(
        "a repair calls a topic lost whose damaged record has its name still",
        "tests/unit/engine/test_closing.py",
        "offline/mending/lossy_catalog.py",
        "            lost = self._lost.topics.get(topic_id)\n",
        "            lost = None\n",
    ),
    Mutation(
        "a repair deletes a topic for a name that its damaged record does not have",
        "tests/unit/engine/test_closing.py",
        "offline/mending/lossy_catalog.py",
        "topic.id in self._believed and",
        "topic.id < 0 and",
    ),
    Mutation(
        "a checkpoint deletes queue files that the one before it names",
        "tests/unit/store/test_store.py",
        "store/store.py",
        "            deleted=self._doomed,\n",
        "            deleted=frozenset(self._deleted),\n",
    ),
    *(Mutation(*each) for each in OF_TIME),
    *(Mutation(*each) for each in OF_LIVES),
)


def main() -> int:
    """With words, only the faults that have one of them, and not by the models."""
    missed = 0
    words = sys.argv[1:]
    for mutation in MUTATIONS:
        if words and not any(word in mutation.fault for word in words):
            continue
        for hunter in (mutation.model, SIMULATED):
            if (words and ":" in hunter) or (hunter == SIMULATED and not mutation.simulated):
                continue
            with tempfile.TemporaryDirectory() as directory:
                found = _hunted(mutation, hunter, Path(directory))
            missed += found.startswith("not")
            print(f"| {mutation.fault} | {re.split('[:/]', hunter)[-1]} | {found} |", flush=True)
    return 1 if missed else 0


def _hunted(mutation: Mutation, hunter: str, directory: Path) -> str:
    shutil.copytree(ROOT / "broker", directory / "broker")
    path = directory / "broker" / "latermq_broker" / mutation.file
    text = path.read_text()
    if text.count(mutation.now) != 1:
        return "not there: the text has changed"
    path.write_text(text.replace(mutation.now, mutation.then))
    paths = [directory / "broker", ROOT / "client", ROOT / "proto", ROOT / "tests"]
    environment = {"PYTHONPATH": ":".join(map(str, paths))}
    if hunter.endswith(".py"):
        return _failing_test(hunter, environment)
    found = ""
    for seed in SEEDS:
        command = ["property.hunt", hunter, str(seed), str(EXAMPLES_MAX)]
        if hunter == SIMULATED:
            command = ["crash.hunt", str(SEEDS[0]), str(HISTORIES_MAX)]
        hunt = subprocess.run(
            [sys.executable, "-m", *command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        found = hunt.stdout.strip() or f"not run: {hunt.stderr[-300:]}"
        if hunter == SIMULATED or not found.startswith("not"):
            return found if seed == SEEDS[0] else f"seed {seed}, {found}"
    return found


def _failing_test(tests: str, environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", tests]
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    failed = [line for line in run.stdout.splitlines() if line.startswith("FAILED ")]
    if run.returncode != 1 or not failed:
        return f"not found: {run.stdout[-300:]}"
    return failed[0].partition("::")[2]


if __name__ == "__main__":
    sys.exit(main())

"""A broker's directory through many lives on a disk that fails: one seed, one history.

Each round is a life: clients act, time passes, the pump's work is done in small steps, until the
process is killed or power fails in the middle of a random call of the file system, a call fails, or
the broker stops in order. Then it starts again, which may be cut short in the same way, and
everything is held against the ledger. In between, power is lost in thought: the disk as it might be
found after a call is recovered and drained on the side (an image).

    python -m support.simulation SEED LIVES IMAGE_SHARE     repeats a history, as its note says
"""

import errno
import sys
from collections import Counter
from contextlib import suppress
from enum import Enum
from random import Random
from typing import Final

from latermq_broker.catalog.catalog import BackoffKind
from latermq_broker.config.config import (
    CatalogConfig,
    Config,
    DeliveryConfig,
    Flush,
    TransactionConfig,
)
from latermq_broker.engine.engine import Engine
from latermq_broker.engine.state.model import Backoff
from latermq_broker.errors import LaterMQError
from latermq_broker.schedule.run_merge import merge_runs
from latermq_broker.store.checkpoint_job import CheckpointJob
from latermq_broker.store.offline.inspect import verify_directory
from latermq_broker.store.store import Store
from support.audit import audit, drain, locked
from support.engine_facts import facts
from support.engine_rig import EngineRig, do_due, short_store
from support.ledger import Ledger
from support.memory_files import lose_checkpoints
from support.sim_clients import Clients
from support.sim_desk import (
    ATTEMPTS_MAX,
    AUTO_RENEW_MS,
    AUTO_RENEWED_MS,
    GROUPS,
    LADDERS_MS,
    ORDERED,
    TOPIC,
    UNWANTED_MS,
    imagine,
)
from support.small_bounds import SMALLEST, bounded
from support.torn_files import SHORT_WRITE, Death, Fault, TornDisk, TornFiles

DIRECTORY: Final = EngineRig.DIRECTORY
START_MS: Final = 1_700_000_000_000
STEPS_MAX: Final = 60  # of one life
RETENTION_MS: Final = 8_000
ERRORS: Final = {
    "EIO": errno.EIO,
    "ENOSPC": errno.ENOSPC,
    "EDQUOT": errno.EDQUOT,
    "EINTR": errno.EINTR,
    "short write": SHORT_WRITE,
}


class End(Enum):
    KILL = "kill"
    POWER = "power loss"
    FAULT = "fault"
    STOP = "stop"


HOW_OFTEN: Final = {End.KILL: 7, End.POWER: 7, End.FAULT: 4, End.STOP: 4}


class Simulation:
    """See the module.

    Args:
        image_share: of the calls that change the disk, how many are looked at as an image.
    """

    def __init__(self, seed: int, *, image_share: float = 0.02) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.faults: Counter[str] = Counter()  # tried, by kind
        self.images = 0
        self.now_ms = START_MS
        retention_ms = random.choice((0, RETENTION_MS))
        store = short_store(retention_ms=retention_ms, dead_letter_retention_ms=1 << 40)
        object.__setattr__(store, "flush", random.choice((Flush.ASYNC, Flush.SYNC)))
        self.config = Config(
            store=bounded(store, SMALLEST),
            delivery=DeliveryConfig(
                auto_renew_lease_ms=AUTO_RENEW_MS,
                auto_renew_total_ms_max=AUTO_RENEWED_MS,
                unwanted_retry_ms_max=UNWANTED_MS,
            ),
            transaction=TransactionConfig(first_check_ms=500, check_interval_ms=700, checks_max=3),
            catalog=CatalogConfig(default_queue_count=2),
        )
        attempts_max = dict.fromkeys(GROUPS, ATTEMPTS_MAX)
        self.ledger = Ledger(attempts_max, retention_ms, unwanted_ms={ORDERED: UNWANTED_MS})
        self.files = TornFiles(TornDisk(entropy=Random(f"{seed} entropy")))
        self.engine: Engine
        self.clients: Clients
        self._image_share = image_share
        self._calls_left = 0  # until death; 0: none planned
        self._tears = False  # the write it dies in is done in part
        self._job: CheckpointJob | None = None
        self._alive = False
        self._durable = 0  # at the last death
        self._kept = 0  # what the log had written then, unless power was lost
        self._fault_name = ""
        self._synced = 0  # what a sync returned and the loop does not know of yet

    # --- rounds --------------------------------------------------------------------------------

    def run(self, rounds: int) -> None:
        """So many lives, and a last look. Raises AssertionError with what was broken."""
        self.begin()
        try:
            for _ in range(rounds):
                self.round()
            self.files.after_call = None
            self.engine.write()
            self.clients.settle(self.ledger, self.engine.store.log.written)
            self.ledger.crashed()
            self._examine(self.engine, self.ledger, 0)
            self.engine.close(self.now_ms)
            assert self.files.open_count == 0
        except BaseException as error:
            again = f"{self.seed} {rounds} {self._image_share}"
            error.add_note(f"python -m support.simulation {again}, life {self.ledger.life}")
            raise

    def begin(self) -> None:
        """A new directory, its groups made and durable."""
        self.engine = self.opened(self.files)
        self._alive = True
        self.clients = Clients(self.engine, self.random, self.now_ms)
        ladder = Backoff(kind=BackoffKind.LADDER, delays_ms=LADDERS_MS[0])
        for group in GROUPS:
            self.engine.groups.create(
                group,
                fifo=group == ORDERED,
                max_attempts=ATTEMPTS_MAX,
                backoff=ladder,
                now_ms=self.now_ms,
            )
        self.engine.write()
        self.engine.store.log.synced(self.engine.store.log.sync())

    def round(self) -> None:
        """One life, its end, and the next start."""
        [end] = self.random.choices(list(HOW_OFTEN), list(HOW_OFTEN.values()))
        steps = self.random.randrange(STEPS_MAX)
        if end is End.FAULT:
            self._plan_fault()
        elif self.random.random() < (0.3 if end is End.STOP else 0.8):
            self._plan_death(tears=end is End.KILL)
        self.files.after_call = self._called
        before: dict[str, object] | None = None
        stopped = False
        try:
            for _ in range(steps):
                self.step()
            if end is End.STOP:
                self._finish_job()
                self.now_ms += 1  # what was said in the last millisecond may count as cut off
                self.engine.close(self.now_ms)
                stopped = True
            elif end is End.KILL and not self.random.randrange(3):
                before = settled(self.engine, self.now_ms)
        except Death:
            pass
        except (LaterMQError, OSError):
            if not self.files.fired:
                raise
        fired = self.files.fired
        self.die(power=end is End.POWER, stopped=stopped)
        name = end.value
        self.faults[name if end is not End.FAULT else self._fault_name if fired else "kill"] += 1
        away_ms = self.random.choice((0, 1, 200, 5_000))
        if stopped:  # long enough for leases to end that are not renewed
            self.now_ms += away_ms
        self.check_start(before)
        self.now_ms += 0 if stopped else away_ms
        self._recover()

    def _plan_death(self, *, tears: bool) -> None:
        self._calls_left = 1 + int(self.random.expovariate(1 / 25))
        self._tears = tears

    def _plan_fault(self) -> None:
        self._fault_name = self.random.choice(list(ERRORS))
        persistent = self.random.random() < 0.5
        at = self.files.calls + 1 + int(self.random.expovariate(1 / 15))
        self.files.fault = Fault(at, ERRORS[self._fault_name], persistent)
        self.files.fired = 0

    def _called(self) -> None:
        """After every call that changed the disk."""
        if self.random.random() < self._image_share:
            self._look_at_image()
        if self._calls_left:
            self._calls_left -= 1
            if not self._calls_left:
                self.files.dead = True
                raise Death

    def _before_write(self, size: int) -> int:
        """A kill in the middle of a write leaves its beginning."""
        return self.random.randrange(size + 1) if self._tears and self._calls_left == 1 else size

    def die(self, *, power: bool, stopped: bool = False) -> None:
        """The disk and the ledger as they are after this death, or after a stop in order.

        What a kill left in the cache counts as kept, and may still be lost with the power.
        """
        log = self.engine.store.log
        self._alive = False
        self._durable, self._kept = log.durable, log.written
        self.clients.settle(self.ledger, self._durable)
        if stopped:
            self.ledger.stopped()
        else:
            self.ledger.crashed()
        self.engine.checkpoints.release()
        self._job, self._synced = None, 0
        self._change_disk(power=power)

    def _change_disk(self, *, power: bool) -> None:
        disk = self.files.disk
        if power:
            self._kept = self._durable
            disk = disk.power_loss(self.random.getrandbits(32))
        disk.kill()
        self.files = TornFiles(disk)
        self._calls_left = 0

    def _recover(self) -> None:
        """Start again; half of the first starts die, too."""
        while self.random.random() < 0.3:
            power = self.random.random() < 0.5
            self.files.after_call = self._called
            self._plan_death(tears=not power)
            with suppress(Death):
                self.opened(self.files).abandon()
            self.faults["power loss in recovery" if power else "kill in recovery"] += 1
            self._change_disk(power=power)
        self.files.after_call = self._called
        self.engine = self.opened(self.files)
        self._alive = True
        self.clients.forget(self.ledger, self._kept)
        topic = self.engine.catalog.topic(TOPIC)
        self.ledger.found_topic(topic.epoch if topic is not None else "")
        self.clients.engine, self.clients.life = self.engine, self.ledger.life
        self.clients.began_ms = self.now_ms

    def opened(self, files: TornFiles) -> Engine:
        files.before_write = self._before_write if files is self.files else None
        store = Store.open(DIRECTORY, self.config.store, files, self.now_ms)
        return Engine.open(store, self.config, self.now_ms)

    # --- checks --------------------------------------------------------------------------------

    def check_start(self, before: dict[str, object] | None) -> None:
        """Start on copies: as live (I8), from the log alone (I8), on a second copy (I11)."""
        files = TornFiles(self.files.disk.clone())
        assert verify_directory(DIRECTORY, files).ok
        copies = [files, TornFiles(files.disk.clone()), TornFiles(files.disk.clone())]
        lose_checkpoints(copies[2])
        engines = [self.opened(copy) for copy in copies]
        found = [settled(engine, self.now_ms) for engine in engines]
        assert before in (None, found[0]), "I8: recovery brought back another state"
        assert found[0] == found[2], "I8: replay of the whole log leads to another state"
        assert found[0] == found[1], "I11: a second copy of the directory leads to another state"
        locked(DIRECTORY, self.config.store, files, self.now_ms)
        self._examine(engines[0], imagine(self.ledger, self.clients, self._kept), self._kept)
        for engine in engines:
            engine.abandon()

    def examine(self, files: TornFiles) -> None:
        """Start on what the last death left, or a copy of it, and hold it against the ledger.

        Raises AssertionError, and what a start raises.
        """
        engine = self.opened(files)
        self._examine(engine, imagine(self.ledger, self.clients, self._kept), self._kept)
        engine.abandon()

    def _examine(self, engine: Engine, ledger: Ledger, durable: int) -> None:
        assert engine.recovery is not None
        if engine.recovery.end < durable:
            ledger.violated(10, f"the log ends at {engine.recovery.end}, {durable} was durable")
        now_ms = max(self.now_ms, engine.store.log.last_store_ms)
        gone = audit(engine, ledger, now_ms)
        drain(engine, ledger, now_ms, gone)
        assert not ledger.violations, "\n".join([ledger.summary(), *ledger.violations])

    def _look_at_image(self) -> None:
        """Lose power in thought."""
        self.images += 1
        files = self.files.power_loss(self.random.getrandbits(32))
        durable = self.engine.store.log.durable if self._alive else self._durable
        ledger = imagine(self.ledger, self.clients, durable)
        ledger.crashed()
        engine = self.opened(files)
        self._examine(engine, ledger, durable)
        engine.abandon()

    # --- what happens in a life ----------------------------------------------------------------

    def step(self) -> None:
        dice = self.random.random()
        if dice < 0.55:
            self.clients.now_ms = self.now_ms
            self.clients.act()
        elif dice < 0.75:
            self.now_ms += self.random.choice((1, 20, 150, 700, 2_000))
            self.engine.tick(self.now_ms)
            self.engine.write()
        elif dice < 0.85:
            self.sync()
        else:
            self._keep_house()

    def sync(self) -> None:
        """As the pump: a thread syncs, and the loop hears of it later."""
        log = self.engine.store.log
        if self._synced:
            log.synced(self._synced)
            self._synced = 0
            log.mark(self.now_ms)
            self.engine.write()
            self.clients.settle(self.ledger, log.durable)
        else:
            self._synced = log.sync()

    def _finish_job(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            try:
                job.run()
            finally:
                self.engine.checkpoints.finish(job)

    def _keep_house(self) -> None:
        """Checkpoints in three steps, segments prepared ahead, runs merged; see `disk_work`."""
        checkpoints, log = self.engine.checkpoints, self.engine.store.log
        dice = self.random.random()
        excused = (OSError, LaterMQError) if self.files.fault else ()
        with suppress(*excused):
            if dice < 0.3 and self._job is None:
                self._job = checkpoints.begin(self.now_ms)
            elif dice < 0.6:
                self._finish_job()
            elif dice < 0.75:
                log.prepare_next()
            elif dice < 0.85:
                log.row.prepare_spare()
            elif self._job is None and (arguments := checkpoints.merge_arguments()):
                directory = self.engine.store.runs_directory
                merge_runs(self.files, directory, int(arguments[1]), arguments[2], arguments[3:])
                checkpoints.adopt_merge(arguments)


def settled(engine: Engine, now_ms: int) -> dict[str, object]:
    """The state once everything that is due now is done; retention, in slices, apart.

    Groups end their leases one after the other: backoffs that ended before a checkpoint, which a
    replay ends once more without a record, take no turn of a lease then.
    """
    deadlines = engine._state.leases.deadlines
    step_cost, engine.retention.step_cost = engine.retention.step_cost, 0
    quantum, deadlines.quantum = deadlines.quantum, 1 << 30
    do_due(engine, now_ms)
    engine.retention.step_cost, deadlines.quantum = step_cost, quantum
    return facts(engine)


if __name__ == "__main__":
    seed, lives, share = [*sys.argv[1:], *("25", "0.045")[len(sys.argv) - 2 :]]
    simulation = Simulation(int(seed), image_share=float(share))
    simulation.run(int(lives))
    print(simulation.ledger.summary(), simulation.images, "images", dict(simulation.faults))

"""The store against lists and a dict, through appends, checkpoints, crashes and power losses."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from latermq_broker.store.offline.inspect import verify_directory
from latermq_broker.store.recovery import RecoveryReport
from support.store_rig import ROOT, StoreRig
from support.torn_files import TornFiles

SIZES = st.one_of(st.integers(0, 200), st.integers(0, 4000))
TOPICS = st.integers(1, 3)


class StoreMachine(RuleBasedStateMachine):
    """`StoreRig` holds the model: its facts and queues are what must come back."""

    @initialize()
    def begin(self) -> None:
        self.files = TornFiles()
        self.rig = StoreRig(self.files)
        self.rig.start()
        self.generation = 0  # topics are never used again once dropped
        self.job_running = False

    def topic(self, number: int) -> int:
        return self.generation * 10 + number

    @rule(size=SIZES, topic=TOPICS, queue=st.integers(0, 1))
    def append(self, size: int, topic: int, queue: int) -> None:
        self.rig.append(size, topic_id=self.topic(topic), queue_id=queue)

    @rule(sizes=st.lists(st.integers(0, 900), min_size=2, max_size=6), topic=TOPICS)
    def append_group(self, sizes: list[int], topic: int) -> None:
        self.rig.append(*sizes, topic_id=self.topic(topic))

    @rule()
    def write(self) -> None:
        self.rig.write()

    @rule()
    def sync(self) -> None:
        self.rig.write()
        self.rig.sync()

    @rule()
    def idle(self) -> None:
        self.rig.store.log.mark(self.rig.now_ms)

    @rule()
    def prepare_next(self) -> None:
        self.rig.store.log.prepare_next()

    @precondition(lambda self: not self.job_running)
    @rule()
    def begin_checkpoint(self) -> None:
        self.job = self.rig.begin_checkpoint()
        self.rig.model.wrote()
        self.job_running = True

    @precondition(lambda self: self.job_running)
    @rule(run=st.booleans())
    def finish_checkpoint(self, run: bool) -> None:
        if run:
            self.job.run()
            self.rig.model.synced(self.job.durable)
        self.rig.store.finish_checkpoint(self.job)
        self.job_running = False

    @rule()
    def drop(self) -> None:
        for number in range(1, 4):
            self.rig.drop(self.topic(number))
        self.generation += 1

    @rule(ms=st.integers(-3_600_000, 3_600_000))
    def clock_jumps(self, ms: int) -> None:
        self.rig.now_ms = max(1, self.rig.now_ms + ms)

    @rule()
    def kill(self) -> None:
        self.files.disk.kill()
        self.restart(power_lost=False)

    @rule(seed=st.integers(0, 10**6))
    def lose_power(self, seed: int) -> None:
        self.files = self.rig.files = self.files.power_loss(seed)
        self.restart(power_lost=True)

    @precondition(lambda self: not self.job_running)
    @rule()
    def stop_and_start(self) -> None:
        self.rig.close()
        report = self.restart(power_lost=False)
        assert report.clean
        assert report.records == report.torn_bytes == 0

    def restart(self, *, power_lost: bool) -> RecoveryReport:
        before = self.files.disk.snapshot()
        if any(path.suffix == ".seg" for path in before):
            assert verify_directory(ROOT, self.files).ok
        assert self.files.disk.snapshot() == before
        self.job_running = False
        report = self.rig.restart(power_lost=power_lost)
        assert self.rig.store.log.durable == self.rig.store.log.end
        return report

    @invariant()
    def queues_hold_what_was_put_in(self) -> None:
        if hasattr(self, "rig"):
            self.rig.check_queues()

    @invariant()
    def positions_are_in_order(self) -> None:
        if hasattr(self, "rig"):
            log = self.rig.store.log
            assert log.start <= log.durable <= log.written <= log.end


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

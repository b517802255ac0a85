"""Who declares schedules, against dicts: workers that begin, go silent and end, crashes, restarts,
checkpoints, a wall clock that is set, and pruning.

Held all the time: an app's schedule is running while a worker of it was heard within SILENT_MS, or
may be on its way back after a start; else it is declared by no running worker since one was heard
last. Pruning removes what no running worker, no other app and nobody by hand has, and nothing else.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from latermq_broker.catalog.declarations import BY_HAND, NO_WORKER, RUNNING
from latermq_broker.catalog.schedules import Schedule
from latermq_broker.engine.catalog.declarers import SILENT_MS
from support.engine_facts import facts
from support.schedule_rig import TOPIC, ScheduleRig
from support.small_bounds import MODEL_STORE

NAMES = ("a", "b", "c")
APPS = ("billing", "shipping")
WORKERS = ("one", "two")
YEAR_MS = 366 * 86_400_000  # no schedule ticks

apps, names = st.sampled_from(APPS), st.sets(st.sampled_from(NAMES))


class DeclarersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = ScheduleRig(store=MODEL_STORE)
        self.claims: dict[str, dict[str, int]] = {}  # as `Declarations` has them
        self.workers: dict[tuple[str, str], tuple[int, set[str]]] = {}
        self.heard: dict[tuple[str, str], int] = {}
        self.before: set[tuple[str, str]] = set()
        self.began_ms = self.rig.now_ms

    def teardown(self) -> None:
        self.rig.engine.abandon()

    @property
    def wall_ms(self) -> int:
        return self.rig.now_ms + self.rig.ahead_ms

    def running(self) -> set[tuple[str, str]]:
        return {
            (app, name)
            for name, claims in self.claims.items()
            for app, since_ms in claims.items()
            if app != BY_HAND and since_ms == RUNNING
        }

    def happen(self) -> None:
        now_ms = self.rig.now_ms
        self.workers = {
            key: one for key, one in self.workers.items() if now_ms - one[0] < SILENT_MS
        }
        live = {(app, name) for (app, _), (_, has) in self.workers.items() for name in has}
        for app, name in self.running() - live:
            if (app, name) in self.before and now_ms - self.began_ms < SILENT_MS:
                continue
            heard_ms = self.heard.get((app, name), self.began_ms)
            self.claims[name][app] = heard_ms + self.rig.ahead_ms

    @rule(name=st.sampled_from(NAMES), app=st.sampled_from((BY_HAND, *APPS)))
    def put(self, name: str, app: str) -> None:
        wanted = Schedule(name=name, topic=TOPIC, every_ms=YEAR_MS)
        self.rig.engine.schedules.put(wanted, self.rig.now_ms, app=app)
        if app:
            self.rig.engine.declarers.claim(app, name, self.rig.now_ms)
        if app or name not in self.claims:
            self.claims.setdefault(name, {}).setdefault(app, NO_WORKER)

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        if self.claims.pop(name, None) is not None:
            self.rig.engine.schedules.remove(name, self.rig.now_ms)

    @rule(app=apps, worker=st.sampled_from(WORKERS), has=names)
    def declare(self, app: str, worker: str, has: set[str]) -> None:
        self.rig.engine.declarers.declare(app, worker, has, self.rig.now_ms)
        present = has & self.claims.keys()
        for name in present:
            self.claims[name][app] = RUNNING
            self.heard[app, name] = self.rig.now_ms
        self.workers[app, worker] = (self.rig.now_ms, present)
        self.time_passes(0)

    @rule(app=apps, worker=st.sampled_from(WORKERS))
    def end(self, app: str, worker: str) -> None:
        self.rig.engine.declarers.end(app, worker, self.rig.now_ms)
        _, has = self.workers.pop((app, worker), (0, set()))
        self.heard |= {(app, name): self.rig.now_ms for name in has}
        self.time_passes(0)

    @rule(step_ms=st.sampled_from((1, 9_000, 44_999, 45_000)))
    def time_passes(self, step_ms: int) -> None:
        self.rig.advance(step_ms)
        self.happen()

    @rule(step_ms=st.sampled_from((-86_400_000, -1_700, 61_000)))
    def somebody_sets_the_clock(self, step_ms: int) -> None:
        self.rig.step_wall(step_ms)
        self.happen()

    @rule(away_ms=st.sampled_from((0, 30_000, 400_000)), checkpoint=st.booleans())
    def dies_and_comes_back(self, away_ms: int, checkpoint: bool) -> None:
        self.rig.engine.write()
        before = facts(self.rig.engine)
        if checkpoint:
            self.rig.checkpoint()
        self.rig.now_ms += away_ms
        self.rig.crash()
        assert facts(self.rig.engine) == before
        self.began_ms, self.before = self.rig.now_ms, self.running()
        self.workers, self.heard = {}, {}
        self.time_passes(0)

    @rule(
        app=st.sampled_from((BY_HAND, *APPS)),
        keep=names,
        dry_run=st.booleans(),
        by_code=st.booleans(),
    )
    def prune(self, app: str, keep: set[str], dry_run: bool, by_code: bool) -> None:
        by_code = by_code and app != BY_HAND
        pruned = self.rig.engine.declarers.prune(
            app, keep, self.rig.now_ms, dry_run=dry_run, by_code=by_code
        )
        removed, kept = list[str](), list[str]()
        for name, claims in sorted(self.claims.items()):
            had = {one for one in claims if claims[one] != NO_WORKER}
            ours = had if not app else {app} & (claims.keys() if by_code else had)
            if not ours or name in keep:
                continue
            is_running = any(claims[one] == RUNNING for one in ours)
            (kept if is_running or claims.keys() - ours else removed).append(name)
            if not dry_run and not is_running:
                self.claims[name] = {one: claims[one] for one in claims.keys() - ours}
        assert [each.name for each in pruned.removed] == removed
        assert [each.name for each in pruned.kept] == kept
        if not dry_run:
            self.claims = {name: claims for name, claims in self.claims.items() if claims}

    @invariant()
    def each_is_declared_by_whom_the_model_says(self) -> None:
        engine = self.rig.engine
        assert {each.name for each in engine.schedules.table.all()} == self.claims.keys()
        for name, claims in self.claims.items():
            assert dict(engine.declarations.of(name)) == claims
            is_had = {RUNNING, NO_WORKER} & set(claims.values())
            assert engine.declarations.idle_since_ms(name) == (
                0 if is_had else max(claims.values())
            )


TestDeclarers = DeclarersMachine.TestCase
TestDeclarers.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)

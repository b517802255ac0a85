"""The life of brokers as a Prometheus scrapes it, and the shipped alert rules over it, in promtool.

A life is made of the product's own pages: engines on a simulated clock, scraped every SCRAPE_S. A
series that is missing on a page ends, as for a Prometheus. Minutes count from the first scrape.
Each broker is an instance of its own: `b`, or of several `b0`, `b1`, …
"""

import json
import re
import subprocess
from collections.abc import Callable, Set
from pathlib import Path
from typing import Final

import yaml

from latermq_broker.cluster.metrics_label import labelled
from latermq_broker.engine.state.figures import DURATION_MS, Histogram
from latermq_broker.observability.metrics import Edges, render, render_standby
from latermq_broker.observability.replication_figures import (
    OWNER,
    STANDBY,
    Member,
    MemberSeen,
    Others,
    ReplicationFigures,
)
from support.engine_rig import START_MS, EngineRig

RULES: Final = (
    Path(__file__).resolve().parents[2] / "broker/latermq_broker/config/operating/latermq.rules.yml"
)
SCRAPE_S: Final = 15
_NAMES: Final = frozenset(
    re.findall(r"\b(?:latermq|process)_[a-z_]+", RULES.read_text(encoding="utf-8"))
)
_BY: Final = "group by (alertname, shard, group, topic)"


class Replica:
    """A broker of a replicated log: the owner has an engine, who stands by does not.

    Args:
        rig: the owner's; a standby gets it when it takes over.
        cluster: the log's name.
    """

    def __init__(self, rig: EngineRig | None = None, cluster: str = "shop") -> None:
        self.rig = rig
        self.standbys = 0 if rig is None else 1  # that this broker hears of
        self.lag_entries = 0
        self.silence_ms = 0
        self._cluster = cluster

    def page(self) -> str:
        """Return the page of metrics of an owner, or of a standby."""
        member = Member("", 0, STANDBY, 1, 0, 0, "")
        figures = ReplicationFigures(
            STANDBY if self.rig is None else OWNER, self._cluster, 1, 4_096, self.silence_ms,
            Histogram(DURATION_MS), self.lag_entries,
            others=Others((MemberSeen("s", member, 0, silent=False),) * self.standbys),
        )  # fmt: skip
        if self.rig is None:
            return "".join(render_standby(figures))
        return page_of(self.rig, replication=figures)


def page_of(rig: EngineRig, replication: ReplicationFigures | None = None) -> str:
    """Return the page of metrics of a broker that has just had its look of each second."""
    engine, wall = rig.engine, rig.engine.wall
    engine.store.look_at_disk()
    engine.conditions.look_at_clock(wall.ahead_ms, rig.now_ms)
    engine.conditions.look_at_schedules(engine.schedules.table, wall.at(rig.now_ms), rig.now_ms)
    return "".join(render(rig.engine, Edges(rig.now_ms, replication=replication)))


class AlertLife:
    """One or several brokers behind one Prometheus, from its first scrape on."""

    def __init__(self, *brokers: EngineRig | Replica, began_ms: int = START_MS) -> None:
        """Scrape these brokers from `began_ms` on: engines are shards if they are several."""
        self._brokers = brokers
        self._silent: set[EngineRig | Replica] = set()  # they answer no scrape
        self._began_ms = began_ms
        self._series: dict[str, list[str]] = {}
        self._scrapes = 0
        self._expected: list[dict[str, object]] = []

    @property
    def minute(self) -> float:
        """Minutes since the first scrape, of the next one."""
        return self._scrapes * SCRAPE_S / 60

    def live(self, minutes: float, work: Callable[[], object] | None = None) -> None:
        """Let time pass; `work` is done before each scrape."""
        for _ in range(round(minutes * 60 / SCRAPE_S)):
            if work is not None:
                work()
            self._scrape()

    def be_down(self, minutes: float, *brokers: EngineRig | Replica) -> None:
        """Let time pass in which these brokers answer no scrape; none named: all of them."""
        before, self._silent = self._silent, set(brokers or self._brokers)
        self.live(minutes)
        self._silent = before

    def expect(self, *alerts: str, at: float | None = None) -> None:
        """Expect exactly these alerts to fire at a minute, or at the last scrape.

        Args:
            alerts: each the name, then the shard, group and topic that it has, between blanks.
        """
        minute = self.minute - SCRAPE_S / 60 if at is None else at
        self._expect(f'{_BY} (ALERTS{{alertstate="firing"}})', minute, alerts)

    def check(self, directory: Path, ever: Set[str]) -> None:
        """Run the rules over the life; exactly `ever` fired at any time of it."""
        over = f'{_BY} (max_over_time(ALERTS{{alertstate="firing"}}[1000h]))'
        self._expect(over, self.minute, tuple(ever))
        test = {
            "rule_files": [str(RULES)],
            "evaluation_interval": f"{SCRAPE_S}s",
            "tests": [
                {
                    "interval": f"{SCRAPE_S}s",
                    "input_series": [
                        {"series": name, "values": " ".join(values)}
                        for name, values in self._series.items()
                    ],
                    "promql_expr_test": self._expected,
                }
            ],
        }
        path = directory / "life.yml"
        path.write_text(yaml.safe_dump(test), encoding="utf-8")
        ended = subprocess.run(
            ["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr

    def _expect(self, expr: str, minute: float, alerts: tuple[str, ...]) -> None:
        samples = [{"labels": _labels(alert), "value": 1} for alert in alerts]
        at = f"{round(minute * 60)}s"
        self._expected.append({"expr": expr, "eval_time": at, "exp_samples": samples})

    def _scrape(self) -> None:
        """Add one scrape of all, and let the time until the next one pass."""
        page: dict[str, str] = {}
        for number, broker in enumerate(self._brokers):
            page |= self._samples(number, broker)
        for name in page:
            self._series.setdefault(name, ["_"] * self._scrapes)
        for name, values in self._series.items():
            values.append(page.get(name, "stale"))
        self._scrapes += 1
        for broker in self._brokers:
            rig = broker.rig if isinstance(broker, Replica) else broker
            if rig is not None:
                rig.advance(SCRAPE_S * 1_000)

    def _samples(self, number: int, broker: EngineRig | Replica) -> dict[str, str]:
        several = len(self._brokers) > 1
        target = f'instance="b{number if several else ""}",job="latermq"'
        if broker in self._silent:
            return {f"up{{{target}}}": "0"}
        if isinstance(broker, Replica):
            text = broker.page()
        else:
            text = page_of(broker)
            text = "".join(labelled((text,), number)) if several else text
        samples = {f"up{{{target}}}": "1"}
        for line in text.splitlines():
            series, _, value = line.rpartition(" ")
            name, _, labels = series.partition("{")
            if name not in _NAMES:
                continue
            if name == "latermq_start_time_seconds":  # promtool's clock begins at 0
                value = str(float(value) - self._began_ms / 1_000)
            samples[f"{name}{{{target}{',' + labels if labels else '}'}"] = value
        return samples


def _labels(alert: str) -> str:
    name, *of = alert.split()
    labels = {"alertname": name}
    if len(of) % 2:
        labels["shard"] = of.pop(0)
    labels |= dict(zip(("group", "topic"), of, strict=False))
    return "{" + ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items()) + "}"

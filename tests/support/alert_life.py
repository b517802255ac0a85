"""The life of brokers as a Prometheus scrapes it, and the shipped alert rules over it, in promtool.

A life is made of the product's own pages: engines on a simulated clock, scraped every SCRAPE_S. A
series that is missing on a page ends, as for a Prometheus. Minutes count from the first scrape.
"""

import json
import re
import subprocess
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Final

import yaml

from latermq_broker.cluster.metrics_label import labelled
from latermq_broker.observability.metrics import Edges, render
from support.engine_rig import START_MS, EngineRig

RULES: Final = (
    Path(__file__).resolve().parents[2] / "broker/latermq_broker/config/operating/latermq.rules.yml"
)
SCRAPE_S: Final = 15
_NAMES: Final = frozenset(
    re.findall(r"\b(?:latermq|process)_[a-z_]+", RULES.read_text(encoding="utf-8"))
)
_BY: Final = "group by (alertname, shard, group, topic)"


class AlertLife:
    """One or several brokers behind one Prometheus, from its first scrape on."""

    def __init__(self, *rigs: EngineRig, began_ms: int = START_MS) -> None:
        """Scrape these brokers, each a shard if they are several, from `began_ms` on."""
        self._rigs = rigs
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
        self._pass(minutes, work, self._page)

    def be_down(self, minutes: float) -> None:
        """Let time pass in which no scrape is answered."""
        self._pass(minutes, None, lambda: {'up{instance="b",job="latermq"}': "0"})

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

    def _pass(
        self,
        minutes: float,
        work: Callable[[], object] | None,
        look: Callable[[], Mapping[str, str]],
    ) -> None:
        for _ in range(round(minutes * 60 / SCRAPE_S)):
            if work is not None:
                work()
            page = look()
            for name in page:
                self._series.setdefault(name, ["_"] * self._scrapes)
            for name, values in self._series.items():
                values.append(page.get(name, "stale"))
            self._scrapes += 1
            for rig in self._rigs:
                rig.advance(SCRAPE_S * 1_000)

    def _page(self) -> dict[str, str]:
        page = {'up{instance="b",job="latermq"}': "1"}
        for shard, rig in enumerate(self._rigs):
            rig.engine.store.look_at_disk()
            pieces = render(rig.engine, Edges(rig.now_ms))
            text = "".join(labelled(pieces, shard) if len(self._rigs) > 1 else pieces)
            for line in text.splitlines():
                series, _, value = line.rpartition(" ")
                name, _, labels = series.partition("{")
                if name not in _NAMES:
                    continue
                if name == "latermq_start_time_seconds":  # promtool's clock begins at 0
                    value = str(float(value) - self._began_ms / 1_000)
                labels = f",{labels}" if labels else "}"
                page[f'{name}{{instance="b",job="latermq"{labels}'] = value
        return page


def _labels(alert: str) -> str:
    name, *of = alert.split()
    labels = {"alertname": name}
    if len(of) % 2:
        labels["shard"] = of.pop(0)
    labels |= dict(zip(("group", "topic"), of, strict=False))
    return "{" + ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items()) + "}"

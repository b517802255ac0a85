"""The alerts and the dashboard that are shipped ask for series that a broker has.

Where there is a promtool (Debian: prometheus), it checks the rules and runs their own tests.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from latermq_broker.cluster.metrics_label import labelled
from latermq_broker.config.config import DeliveryConfig
from latermq_broker.engine.state.figures import DURATION_MS, Histogram
from latermq_broker.observability.metrics import Edges, render
from latermq_broker.observability.replication_figures import OWNER, ReplicationFigures
from latermq_broker.observability.transport_figures import TransportFigures
from support.engine_rig import EngineRig

ROOT: Final = Path(__file__).resolve().parents[3]
DOCKER: Final = ROOT / "docker"
SHIPPED: Final = ROOT / "broker" / "latermq_broker" / "config" / "operating"
RULES: Final = SHIPPED / "latermq.rules.yml"
DASHBOARD: Final = SHIPPED / "latermq.dashboard.json"
SELECTOR: Final = re.compile(r"\b((?:latermq|process)_[a-z_]+)(?:\{([^}]*)\})?")
LABEL: Final = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"')
GROUPING: Final = re.compile(r"\bby \(([^)]*)\)")
OF_PROMETHEUS: Final = {"instance", "job"}


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    loaded = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return [panel for panel in loaded["panels"] if panel["type"] != "row"]


def queries() -> Iterator[str]:
    for rule in rules():
        yield rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"]
    loaded = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for variable in loaded["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]
    for annotation in loaded["annotations"]["list"]:
        yield annotation["expr"]


@pytest.fixture(scope="module")
def series() -> dict[str, set[str]]:
    """Names of series, and the labels they have, of a shard that has seen a bit of everything."""
    rig = EngineRig(delivery=DeliveryConfig(max_attempts=1))
    rig.send("a", "b")
    rig.send("later", wait_ms=60_000)
    first, second = rig.receive(count=2, push=True)
    rig.ack(first)
    rig.engine.change_invisible("billing", second.handle, 1_000, rig.now_ms)
    figures = TransportFigures(
        calls=1, connections=1, calls_open=1, connections_open=1, deadline_timers=1, tasks=1,
        others={("fault", "pings"): 1},
    )  # fmt: skip
    replication = ReplicationFigures(OWNER, "shop", 1, 4_096, 20, Histogram(DURATION_MS))
    edges = Edges(rig.now_ms, transport=figures, replication=replication)
    text = "".join(labelled(render(rig.engine, edges), 0))
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, labels = line.rpartition(" ")[0].partition("{")
            found.setdefault(name, set()).update(re.findall(r'([a-z_]+)="', labels))
    return found


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_every_query_asks_for_what_there_is(query: str, series: dict[str, set[str]]) -> None:
    selected = SELECTOR.findall(query)
    assert selected or query.startswith("up{")
    for name, matchers in selected:
        assert name in series, name
        wanted = set(LABEL.findall(matchers)) - OF_PROMETHEUS
        assert wanted <= series[name], f"{name} has no {wanted - series[name]}"
    known = set().union(OF_PROMETHEUS, *(series[name] for name, _ in selected))
    for grouped in GROUPING.findall(query):
        assert {label.strip() for label in grouped.split(",")} <= known, query


def test_every_alert_has_a_page_that_says_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert rule["annotations"]["summary"].endswith("."), rule["alert"]
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        text = (ROOT / path).read_text(encoding="utf-8")
        heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in heads}, (
            anchor
        )


def test_every_alert_is_tried_in_the_tests_of_the_rules() -> None:
    loaded = yaml.safe_load(
        (DOCKER / "prometheus" / "latermq.test.yml").read_text(encoding="utf-8")
    )
    tried = {
        case["alertname"]
        for test in loaded["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert tried == {rule["alert"] for rule in rules()}


def test_panels_stand_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        taken |= cells


def test_the_dashboard_asks_whatever_prometheus_a_grafana_has() -> None:
    """It asked one of our compose file's name: imported elsewhere it showed nothing."""
    text = DASHBOARD.read_text(encoding="utf-8")
    loaded = json.loads(text)
    chosen, *others = loaded["templating"]["list"]
    assert (chosen["name"], chosen["type"], chosen["query"]) == (
        "datasource", "datasource", "prometheus",
    )  # fmt: skip
    asking = [
        *panels(), *others, *loaded["annotations"]["list"],
        *(target for panel in panels() for target in panel["targets"]),
    ]  # fmt: skip
    assert {each["datasource"]["uid"] for each in asking} == {"${datasource}"}
    assert text.count('"uid": ') == len(asking) + 1, "the last is the dashboard's own"


def test_what_compose_mounts_is_there() -> None:
    compose = yaml.safe_load((DOCKER / "compose.watch.yaml").read_text(encoding="utf-8"))
    services, volumes = compose["services"], set(compose["volumes"])
    for name in ("prometheus", "grafana"):
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["read_only"] is True
        assert all(port.startswith("127.0.0.1:") for port in services[name]["ports"])
        for mount in services[name]["volumes"]:
            source = mount.split(":")[0]
            assert source in volumes or (DOCKER / source).is_dir(), mount
    scrape = yaml.safe_load((DOCKER / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    [job] = scrape["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    assert job["job_name"] == "latermq"
    listen = services["broker"]["environment"]["LATERMQ_METRICS_LISTEN"]
    assert target.split(":")[1] == listen.split(":")[1]
    mounts = [each.split(":") for each in services["prometheus"]["volumes"]]
    places = {place: (DOCKER / source).resolve() for source, place, *_ in mounts}
    [rule_file] = map(Path, scrape["rule_files"])
    assert places[str(rule_file.parent)] / rule_file.name == RULES
    provisioned = DOCKER / "grafana" / "provisioning"
    source = yaml.safe_load((provisioned / "datasources" / "latermq.yml").read_text("utf-8"))
    assert source["datasources"][0]["isDefault"], "the dashboard begins with it"
    boards = yaml.safe_load((provisioned / "dashboards" / "latermq.yml").read_text("utf-8"))
    path = boards["providers"][0]["options"]["path"]
    mounts = [each.split(":") for each in services["grafana"]["volumes"]]
    places = {place: (DOCKER / source).resolve() for source, place, *_ in mounts}
    assert places[path] == DASHBOARD.parent
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{path}/{DASHBOARD.name}"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian: prometheus)")
@pytest.mark.parametrize(
    "words", [["check", "rules", str(RULES)], ["test", "rules", "latermq.test.yml"]]
)
def test_promtool_agrees(words: list[str]) -> None:
    ended = subprocess.run(
        ["promtool", *words], cwd=DOCKER / "prometheus", capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr

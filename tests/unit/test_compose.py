"""docker/: what a parser can prove; `make compose-test` runs the files, where there is an engine.

Every service, volume, port, build target, module and command that they name must exist, and the
start order must hang on health.
"""

import importlib.util
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from latermq_broker.config.toml_file import load

ROOT: Final = Path(__file__).resolve().parents[2]
COMPOSE: Final = ROOT / "docker" / "compose.yaml"
CLUSTER: Final = ROOT / "docker" / "compose.cluster.yaml"
DOCKERFILE: Final = ROOT / "docker" / "Dockerfile"
SERVICES: Final = {"broker", "setup", "orders", "billing", "report"}
ENDPOINT: Final = "broker:8081"


def loaded(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return loaded(COMPOSE)


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    return loaded(CLUSTER)


@pytest.fixture(scope="module", params=[COMPOSE, CLUSTER], ids=lambda path: path.name)
def ours(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The services of a file that run our images."""
    services = loaded(request.param)["services"]
    return {name: each for name, each in services.items() if "build" in each}


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile as (instruction, arguments), continuation lines joined, comments out."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text(encoding="utf-8"))
    lines = [line.strip() for line in text.splitlines()]
    parts = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    return [(word.upper(), rest) for word, rest in parts]


def stages() -> dict[str, list[tuple[str, str]]]:
    """Instructions of each named build stage, those of the stages it builds on first."""
    found: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    for word, rest in instructions():
        if word == "FROM":
            parent, name = re.fullmatch(r"(\S+) AS (\S+)", rest).groups()  # type: ignore[union-attr]
            current = list(found.get(parent, []))
            found[name] = current
        else:
            current.append((word, rest))
    return found


def words(value: str | list[str] | None) -> list[str]:
    return shlex.split(value) if isinstance(value, str) else list(value or [])


def test_the_services_of_the_story_are_there(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == SERVICES
    assert all("container_name" not in service for service in compose["services"].values())


def test_every_build_names_a_stage_of_the_dockerfile(ours: dict[str, Any]) -> None:
    for name, service in ours.items():
        build = service["build"]
        assert (COMPOSE.parent / build["context"]).resolve() == ROOT, name
        assert (ROOT / build["dockerfile"]).resolve() == DOCKERFILE, name
        assert build["target"] in stages(), name


def test_one_image_name_is_one_build_target(compose: dict[str, Any]) -> None:
    targets: dict[str, set[str]] = {}
    for service in compose["services"].values():
        targets.setdefault(service["image"], set()).add(service["build"]["target"])
    assert targets == {"latermq:latest": {"broker"}, "latermq-spark:latest": {"spark"}}


def test_volumes_are_declared_and_belong_to_the_image(compose: dict[str, Any]) -> None:
    mounted = set()
    for name, service in compose["services"].items():
        target = service["build"]["target"]
        declared = {rest for word, rest in stages()[target] if word == "VOLUME"}
        for mount in service.get("volumes", []):
            volume, path = mount.split(":")
            mounted.add(volume)
            assert path in declared, f"{name}: {path} is not a VOLUME of {target}"
    assert mounted == set(compose["volumes"]) == {"broker-data", "report-data"}


def test_the_broker_is_published_on_loopback_only(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert services["broker"]["ports"] == ["127.0.0.1:8081:8081"]
    assert ("EXPOSE", "8081") in stages()["broker"]
    assert all("ports" not in services[name] for name in SERVICES - {"broker"})


def test_everyone_waits_for_a_healthy_broker(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert "depends_on" not in services["broker"]
    for name in SERVICES - {"broker"}:
        needs = services[name]["depends_on"]
        assert needs["broker"] == {"condition": "service_healthy"}, name
        assert services[name]["environment"] == {"LATERMQ_ENDPOINT": ENDPOINT}, name
    for name in SERVICES - {"broker", "setup"}:
        needs = services[name]["depends_on"]
        assert needs["setup"] == {"condition": "service_completed_successfully"}, name


def test_the_health_check_is_the_images_own(compose: dict[str, Any]) -> None:
    check = words(compose["services"]["broker"]["healthcheck"]["test"])
    assert check[0] == "CMD"
    [ours] = [rest for word, rest in stages()["broker"] if word == "HEALTHCHECK"]
    assert yaml.safe_load(ours.split("CMD", 1)[1]) == check[1:]
    assert compose["services"]["broker"]["restart"] == "unless-stopped"
    assert "restart" not in compose["services"]["setup"], "it runs once"


def test_every_module_that_is_run_exists(ours: dict[str, Any]) -> None:
    for name, service in ours.items():
        run = [words(service.get("entrypoint")), words(service.get("healthcheck", {}).get("test"))]
        for command in run:
            if "-m" in command:
                module = command[command.index("-m") + 1]
                assert importlib.util.find_spec(module) is not None, f"{name}: {module}"


@pytest.mark.parametrize("target", ["broker", "spark"])
def test_an_image_runs_as_nobody_in_particular(target: str) -> None:
    users = [rest for word, rest in stages()[target] if word == "USER"]
    assert users == ["latermq"]
    entry = [rest for word, rest in stages()[target] if word == "ENTRYPOINT"]
    assert len(entry) == 1
    assert isinstance(yaml.safe_load(entry[0]), list), "exec form: signals reach the process"


def test_a_plain_build_makes_the_broker() -> None:
    assert list(stages())[-1] == "broker"


def test_what_is_copied_exists_and_reaches_the_build() -> None:
    ignore = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    allowed = {line[1:] for line in ignore.splitlines() if line.startswith("!")}
    for word, rest in instructions():
        if word != "COPY" or rest.startswith("--from"):
            continue
        *sources, _destination = rest.split()
        for source in sources:
            assert (ROOT / source).exists(), source
            assert source in allowed, f"{source} is hidden by Dockerfile.dockerignore"


def test_every_service_is_confined(ours: dict[str, Any]) -> None:
    for name, service in ours.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert re.fullmatch(r"[0-9]+[mg]", service["mem_limit"]), name
        assert 0 < service["pids_limit"] <= 512, name
        assert not {"privileged", "cap_add", "network_mode"} & set(service), name
        assert service.get("pid", "service:processes") == "service:processes", name
        assert all("size=" in mount for mount in service["tmpfs"]), name


def test_three_brokers_keep_six_logs_in_three_nodes(cluster: dict[str, Any]) -> None:
    """Each owns two of them; clients reach the owners by a name that all three brokers have."""
    services = cluster["services"]
    nodes = [name for name in services if re.fullmatch(r"kafka-\d", name)]
    brokers = [name for name in services if name.startswith("broker-")]
    assert len(nodes) == len(brokers) == 3
    addresses = [f"{name}:8081" for name in brokers]
    voters = ",".join(f"{i}@{name}:9093" for i, name in enumerate(nodes, 1))
    for name in nodes:
        environment = services[name]["environment"]
        assert environment["KAFKA_CONTROLLER_QUORUM_VOTERS"] == voters
        assert environment["KAFKA_ADVERTISED_LISTENERS"] == f"CLIENTS://{name}:9092"
        assert services[name]["volumes"] == [f"{name}-data:{environment['KAFKA_LOG_DIRS']}"]
    for machine, name in enumerate(brokers):
        service = services[name]
        environment = service["environment"]
        config = load(None, {**environment, "LATERMQ_SERVER_LISTEN": f"{name}:8081"}, {})
        assert config.cluster.machine == machine
        assert config.cluster.machines == tuple(addresses)
        assert config.cluster.advertise == tuple(f"latermq:{8081 + shard}" for shard in range(6))
        assert environment["LATERMQ_REPLICATION_KAFKA"] == ",".join(f"{n}:9092" for n in nodes)
        assert {*nodes, "kafka-acls", "processes"} == set(service["depends_on"])
        assert service["networks"]["default"]["aliases"] == ["latermq"]
        assert service["command"][1:5] == ["--shards", "6", "--listen", f"{name}:8081"]
        assert service["volumes"] == [f"{name}-data:/var/lib/latermq"]
        assert service["hostname"] == name
    assert set(cluster["volumes"]) == {f"{name}-data" for name in [*nodes, *brokers]}
    assert services["failover"]["command"] == ["--shards", "6", *addresses]
    assert services["failover"]["profiles"], "it runs when it is asked to"
    clients = [each for each in services.values() if "LATERMQ_ENDPOINT" in str(each)]
    assert {each["environment"]["LATERMQ_ENDPOINT"] for each in clients} == {"latermq:8081"}
    assert all("ports" not in each for each in services.values())


def test_images_of_others_are_named_by_digest() -> None:
    """So that they cannot change; those of ours are built here."""
    for path in sorted((ROOT / "docker").glob("compose*.yaml")):
        for name, service in loaded(path)["services"].items():
            if "image" in service and "build" not in service:
                image = service["image"]
                assert re.fullmatch(r"[a-z/]+:v?[0-9.]+@sha256:[0-9a-f]{64}", image), name


def test_kafka_is_reached_by_the_brokers_alone(cluster: dict[str, Any]) -> None:
    services = cluster["services"]
    assert cluster["networks"] == {"log": {"internal": True}}
    beside = {name for name, each in services.items() if "log" in each.get("networks", ())}
    assert beside == {name for name in services if name.startswith(("kafka-", "broker-"))}


def test_what_a_read_only_service_writes_is_a_volume_or_scratch(compose: dict[str, Any]) -> None:
    """The broker: its data directory, where the image starts; Spark: its report, and /tmp."""
    for target, name in (("broker", "broker"), ("spark", "report")):
        [workdir] = [rest for word, rest in stages()[target] if word == "WORKDIR"]
        mounts = compose["services"][name]["volumes"]
        assert [mount.split(":")[1] for mount in mounts] == [workdir]


def test_every_package_of_an_image_is_checked_by_its_hash() -> None:
    """Those that pip installs; a wheel of ours by the hash it was built with."""
    runs = [rest for word, rest in instructions() if word == "RUN"]
    installs = [one for run in runs for one in run.split("&&") if "pip install" in one]
    assert len(installs) == 5
    assert all("--require-hashes" in one for one in installs)
    [build] = [one for run in runs for one in run.split("&&") if "pip wheel" in one]
    assert "--build-constraint constraints.txt" in build


@pytest.mark.parametrize(("file", "count"), [("constraints.txt", 60), ("proto/compiler.txt", 5)])
def test_every_pinned_version_has_its_hashes(file: str, count: int) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    pins = re.sub(r"\\\n", " ", text).splitlines()
    pins = [line for line in pins if not line.startswith("#")]
    assert len(pins) >= count
    for pin in pins:
        requirement, *hashes = pin.split()
        assert re.fullmatch(r"[a-z0-9-]+==[0-9a-z.]+", requirement), pin
        assert hashes, f"{requirement} has none: make hashes"
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), pin
    assert "://" not in text


def test_base_images_have_the_python_we_ask_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    floor = project["requires-python"].removeprefix(">=")
    bases = {rest.split()[0] for word, rest in instructions() if word == "FROM"}
    assert {base for base in bases if base not in stages()} == {"${BASE}"}
    [base] = [rest for word, rest in instructions() if word == "ARG"]
    tag, digest = base.removeprefix("BASE=").split("@")
    assert tag == f"python:{floor}-slim-bookworm"
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest), "by digest, so that it cannot change"

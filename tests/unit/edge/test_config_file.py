"""Defaults < file < environment < flags; and whatever is wrong is said by name."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import latermq_broker.config
from latermq_broker.config.addresses import listen_address
from latermq_broker.config.cluster import ClusterConfig
from latermq_broker.config.config import Config, Flush
from latermq_broker.config.core_bounds import ScanBounds, StoreBounds
from latermq_broker.config.toml_file import load, to_toml
from latermq_broker.errors import ConfigError

EXAMPLE = Path(latermq_broker.config.__file__).with_name("latermq.toml")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "latermq.toml"


def loaded(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    **flags: Any,
) -> Config:
    return load(file, environment or {}, {k.replace("__", "."): v for k, v in flags.items()})


class TestOrder:
    def test_nothing_given_is_the_defaults(self) -> None:
        assert loaded(store__flush=None) == Config()

    def test_bounds_of_the_core_are_no_settings(self, file: Path) -> None:
        file.write_text("[store]\nbounds = 1\n")
        with pytest.raises(ConfigError, match="no such setting"):
            loaded(file)
        with pytest.raises(ConfigError, match="no such setting"):
            loaded(environment={"LATERMQ_DELIVERY_BOUNDS": "1"})
        with pytest.raises(ConfigError, match="no such setting"):
            loaded(store__bounds=1)
        assert "bounds" not in to_toml(Config())
        assert Config().store.bounds == StoreBounds()
        with pytest.raises(ConfigError, match=r"bounds\.filter_reads_max.*must be at least 1"):
            ScanBounds(filter_reads_max=0)

    def test_each_source_wins_over_the_one_before(self, file: Path) -> None:
        file.write_text('[server]\nlisten = "127.0.0.1:1"\nbroker_name = "a"\n[log]\njson = true\n')
        environment = {"LATERMQ_SERVER_LISTEN": "127.0.0.1:2", "LATERMQ_SERVER_BROKER_NAME": "b"}
        config = loaded(file, environment, server__listen="127.0.0.1:3")
        assert config.server.listen == "127.0.0.1:3"
        assert config.server.broker_name == "b"
        assert config.log.json

    @pytest.mark.parametrize(
        ("variable", "text", "value"),
        [
            ("LATERMQ_STORE_FLUSH", "sync", Flush.SYNC),
            ("LATERMQ_STORE_FLUSH", "sync-strict", Flush.SYNC_STRICT),
            ("LATERMQ_CATALOG_AUTO_CREATE", "Off", False),
            ("LATERMQ_STORE_SYNC_INTERVAL_MS", "50", 50),
            ("LATERMQ_DELIVERY_DELAY_LEVELS_MS", "100, 200 300", (100, 200, 300)),
            ("LATERMQ_SERVER_DATA_DIR", "x y", "x y"),
        ],
    )
    def test_the_environment_speaks_text(self, variable: str, text: str, value: object) -> None:
        config = loaded(environment={variable: text})
        section, _, setting = variable.removeprefix("LATERMQ_").lower().partition("_")
        assert getattr(getattr(config, section), setting) == value

    def test_variables_of_others_are_left_alone(self) -> None:
        environment = {"LATERMQ_ENDPOINT": "x", "LATERMQ_TRACEBACK": "1", "LATERMQ_STORE": "x"}
        clients = ("ACCESS_KEY", "SECRET_KEY", "TLS", "CA", "INSECURE_SKIP_VERIFY", "TRANSPORT")
        environment |= {f"LATERMQ_{name}": "x" for name in clients}
        assert loaded(environment=environment) == Config()


class TestSecrets:
    ENVIRONMENT: Final = {
        "LATERMQ_AUTH_ROOT_ACCESS_KEY": "root",
        "LATERMQ_AUTH_ROOT_SECRET_KEY": "nobody-may-see",
    }

    def test_are_neither_printed_nor_shown(self, file: Path) -> None:
        config = loaded(environment=self.ENVIRONMENT)
        assert config.auth.root_secret_key == "nobody-may-see"
        text = to_toml(config)
        assert "nobody-may-see" not in text + repr(config)
        assert "# root_secret_key is set and not shown" in text

    @pytest.mark.parametrize("value", ['"with blank"', '"short"', "12345678", "[1]"])
    def test_are_not_repeated_by_a_refusal(self, file: Path, value: str) -> None:
        file.write_text(f'[auth]\nroot_access_key = "root"\nroot_secret_key = {value}\n')
        with pytest.raises(ConfigError, match=r"auth\.root_secret_key") as refused:
            loaded(file)
        assert value.strip('"') not in str(refused.value)

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ('root_access_key = "root"', "given together"),
            ('root_secret_key = "long-enough"', "given together"),
            ('root_access_key = "a/b"\nroot_secret_key = "long-enough"', "a-z A-Z 0-9"),
            ("clock_skew_ms_max = -1", "at least 0"),
            ('open_beyond_loopback = "maybe"', "warn, refuse, allow"),
            ("certificate_users = true", "needs tls.enabled"),
        ],
    )
    def test_what_does_not_fit(self, file: Path, text: str, reason: str) -> None:
        file.write_text(f"[auth]\n{text}\n")
        with pytest.raises(ConfigError, match=reason):
            loaded(file)


class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "name", "reason"),
        [
            ("[store]\nflsh = 'sync'", "store.flsh", "did you mean flush?"),
            ("[stroe]\nflush = 'sync'", "stroe", "did you mean store?"),
            ("[log]\nzzz = 1", "log.zzz", "there are level, json"),
            ("[server]\nflush = 'sync'", "server.flush", "did you mean store.flush?"),
            ("flush = 'sync'", "flush", "no such section"),
            ("store = 1", "store", "its settings follow [store]"),
            ("[[store]]\nflush = 'sync'", "store", "its settings follow [store]"),
            (
                "[store]\nflush = 'never'",
                "store.flush",
                "not one of none, async, sync, sync-strict",
            ),
            ("[store]\nflush = 1", "store.flush", "not one of none, async, sync, sync-strict"),
            ("[store]\nsync_bytes = 'x'", "store.sync_bytes", "a whole number"),
            ("[store]\nsync_bytes = true", "store.sync_bytes", "a whole number"),
            ("[store]\nsync_bytes = 0", "store.sync_bytes", "at least 1"),
            ("[store]\nsegment_bytes = 5000", "store.segment_bytes", "multiple of 4096"),
            ("[catalog]\nauto_create = 1", "catalog.auto_create", "true or false"),
            ("[log]\nlevel = 3", "log.level", "text"),
            ("[log]\nlevel = 'loud'", "log.level", "one of debug"),
            ("[delivery]\ndelay_levels_ms = [1, 'x']", "delivery.delay_levels_ms", "whole numbers"),
            ("[delivery]\ndelay_levels_ms = []", "delivery.delay_levels_ms", "1 to 255"),
            ("[delivery]\ntick_timers_max = 0", "delivery.tick_timers_max", "at least 1"),
            ("[catalog]\ntopic_count_max = -1", "catalog.topic_count_max", "at least 1"),
            ("[server]\nlisten = 'here'", "server.listen", "not HOST:PORT"),
            ("[server]\npolling_ms_max = 1", "server.polling_ms_max", "not be below"),
            ('[server]\ndata_dir = "a\\u0000b"', "server.data_dir", "a NUL character"),
            ('[tls]\ncertificate = "\\u0000"\nkey = "k"', "tls.certificate", "a NUL character"),
            ('[server]\nbroker_name = "a\\nb"', "server.broker_name", "without blanks"),
            ('[server]\nbroker_name = "a\\u202e"', "server.broker_name", "without blanks"),
            ("[server]\nbroker_name = ''", "server.broker_name", "1 to 255 characters, not 0"),
            (
                f"[server]\nbroker_name = '{'n' * 256}'",
                "server.broker_name",
                "255 characters, not 256",
            ),
            ("[server", "--config", "is not TOML"),
        ],
    )
    def test_in_a_file(self, file: Path, text: str, name: str, reason: str) -> None:
        file.write_text(text)
        with pytest.raises(ConfigError, match=re.escape(reason)) as refused:
            loaded(file)
        assert refused.value.setting == name

    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
    def test_a_byte_order_mark_is_named(self, file: Path, encoding: str) -> None:
        file.write_text("[server]\n", encoding=encoding)
        with pytest.raises(ConfigError, match=r"byte order mark \(BOM\) of UTF-.*without BOM"):
            loaded(file)

    def test_a_file_that_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
            loaded(tmp_path / "none.toml")
        with pytest.raises(ConfigError, match=r"cannot read .*: Is a directory"):
            loaded(tmp_path)

    @pytest.mark.parametrize(
        ("variable", "text", "reason"),
        [
            ("LATERMQ_STORE_FLSH", "sync", "did you mean flush? (from LATERMQ_STORE_FLSH)"),
            ("LATERMQ_SERVR_LISTEN", "x", "did you mean LATERMQ_SERVER_LISTEN?"),
            ("LATERMQ_STORE_SYNC_BYTES", "1 MB", "'1 MB' is not a whole number"),
            ("LATERMQ_LOG_JSON", "perhaps", "'perhaps' is not true or false"),
            ("LATERMQ_DELIVERY_DELAY_LEVELS_MS", "1s 5s", "not a list of whole numbers"),
        ],
    )
    def test_in_the_environment(self, variable: str, text: str, reason: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(reason)):
            loaded(environment={variable: text})


class TestPrinting:
    def test_what_is_printed_can_be_loaded(self, file: Path) -> None:
        data_dir = 'a "quoted" \\ path\nof two lines, ü'
        config = loaded(server__data_dir=data_dir, store__flush="sync", log__json=True)
        file.write_text(to_toml(config))
        assert loaded(file) == config

    def test_the_example_has_every_setting_commented_with_its_default(self, file: Path) -> None:
        text = EXAMPLE.read_text()
        file.write_text(text)
        assert loaded(file) == Config()
        settings = re.sub(r"^#(\w+ = )", r"\1", text, flags=re.MULTILINE)
        uncommented = [line for line in settings.splitlines() if line and line[0] != "#"]
        assert uncommented == [line for line in to_toml(Config()).splitlines() if line]


class TestTransport:
    def test_tls_needs_the_lean_transport(self) -> None:
        with pytest.raises(ConfigError, match=r"tls\.enabled"):
            loaded(tls__enabled=True, server__transport="grpcio")
        assert loaded(tls__enabled=True).tls.enabled

    @pytest.mark.parametrize(
        ("setting", "value"),
        [
            ("http2.streams_max", 0), ("http2.frame_bytes_max", 1_000),
            ("http2.stream_window_bytes", 1_000), ("http2.connection_window_bytes", 1 << 31),
            ("tls.certificate", "only.pem"), ("tls.client_certificates", "required"),
            ("tls.handshakes_max", 0), ("server.other_request_bytes_max", 1_000),
            ("server.other_request_bytes_max", 1 << 30), ("http2.request_ms_max", 0),
            ("http2.assembly_bytes_max", 1 << 20), ("http2.requests_bytes_max", 1 << 20),
        ],
    )  # fmt: skip
    def test_bounds(self, setting: str, value: Any) -> None:
        with pytest.raises(ConfigError, match=setting.partition(".")[0]):
            loaded(**{setting.replace(".", "__"): value})


class TestListenAddress:
    @pytest.mark.parametrize(
        ("text", "address"),
        [
            ("127.0.0.1:8081", ("127.0.0.1", 8081)),
            ("[::1]:0", ("::1", 0)),
            ("localhost:65535", ("localhost", 65535)),
        ],
    )
    def test_good(self, text: str, address: tuple[str, int]) -> None:
        assert listen_address("x", text) == address

    @pytest.mark.parametrize(
        "text", ["", "8081", ":8081", "host", "host:", "host:http", "host:65536", "::1:80", "h:٣"]
    )
    def test_bad(self, text: str) -> None:
        with pytest.raises(ConfigError):
            listen_address("x", text)


class TestCluster:
    def test_shards_in_a_file_and_in_the_environment(self, file: Path) -> None:
        file.write_text('[cluster]\nshards = ["a:1", "b:1"]\nshard = 1\n')
        assert loaded(file).cluster.shards == ("a:1", "b:1")
        environment = {"LATERMQ_CLUSTER_SHARDS": "c:1, c:2,c:3"}
        config = loaded(file, environment=environment)
        assert (config.cluster.shards, config.cluster.shard) == (("c:1", "c:2", "c:3"), 1)
        file.write_text(to_toml(config))
        assert loaded(file) == config

    @pytest.mark.parametrize(
        ("settings", "reason"),
        [
            ({"shards": ("a:1", "b:1", "a:1")}, "shards 0 and 2 are both at a:1"),
            ({"shards": ("a:1", "b:1"), "shard": 2}, "shard: must be 0 to 1"),
            ({"shards": ("a:1", "b:0")}, "cannot find port 0"),
            ({"shards": ("a",)}, "'a' is not HOST:PORT"),
            ({"shards": tuple(f"a:{n}" for n in range(1, 258))}, "257 shards, at most 256"),
            ({"shards": ("a:1", "b:1"), "advertise": ("c:1",)}, "1 addresses for 2 shards"),
            ({"shard": 1}, "is empty, yet cluster.shard is set"),
            ({"shards": "a:1"}, "is not a list of texts"),
            ({"shards": (1,)}, "1 is not text"),
            ({"shards": ("a:1;b:1", "a:2;")}, "'' is not HOST:PORT"),
            ({"shards": ("a:1;b:1", "a:2;a:1")}, "shards 0 and 1 are both at a:1"),
            ({"shards": ("a:1", "a:2"), "machine": 1}, "machine: must be 0 to 0"),
            ({"shards": ("a:1;b:1",), "machine": 2, "advertise": ("c:1",)}, "must be 0 to 1"),
            ({"machines": ("a:1", "b:1", "a:1")}, "machines 0 and 2 are both at a:1"),
            ({"machines": ("a:1", "b:1"), "machine": 2}, "machine: must be 0 to 1"),
            ({"machines": ("a:1", "b:1"), "machine": 1, "shards": ("a:1",)}, "must be 0 to 0"),
            ({"shards": ("10.0.0.1:1;b:1",)}, "advertise a name that stands for all"),
            ({"shards": ("10.0.0.1:1;[fd00::1]:1",)}, "advertise a name"),
            ({"shards": ("a:1;b:1",), "advertise": ("c:1;d:1",)}, "advertise a name"),
            ({"shards": ("10.0.0.1:1;10.0.0.2:1",)}, "needs replication.kafka"),
        ],
    )
    def test_what_cannot_be_a_cluster(self, settings: dict[str, Any], reason: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(reason)):
            loaded(**{f"cluster__{name}": value for name, value in settings.items()})

    def test_a_shard_of_several_machines(self, file: Path) -> None:
        file.write_text(
            '[replication]\nkafka = "k:9092"\n[server]\nlisten = "10.0.0.2:8082"\n[cluster]\n'
            'shards = ["10.0.0.1:8081;10.0.0.2:8081", "10.0.0.1:8082;10.0.0.2:8082"]\nshard = 1\n'
        )
        cluster = loaded(file, cluster__machine=1).cluster
        assert cluster.addresses == ["10.0.0.1:8082", "10.0.0.2:8082"]
        with pytest.raises(
            ConfigError, match=r"is 0, yet server\.listen is the address of machine 1"
        ):
            loaded(file)

    @pytest.mark.parametrize(("count", "machines"), [(2, 2), (7, 3), (24, 4), (1, 3)])
    def test_machines_take_turns_with_shards(self, count: int, machines: int) -> None:
        places = [[f"10.0.0.{m}:{port}" for m in range(machines)] for port in range(1, count + 1)]
        shards = tuple(map(";".join, places))
        ranks = [
            [ClusterConfig(shards=shards, shard=shard, machine=machine).rank or 0
             for machine in range(machines)]
            for shard in range(count)
        ]  # fmt: skip
        assert all(sorted(each) == list(range(machines)) for each in ranks)
        for place in range(machines):
            owned = Counter(each.index(place) for each in ranks)
            assert max(owned.values()) - min(owned[m] for m in range(machines)) <= 1

    def test_without_other_machines_nobody_is_first(self) -> None:
        assert ClusterConfig().rank is None
        assert ClusterConfig(shards=("a:1", "a:2")).rank is None

    @pytest.mark.parametrize(
        ("settings", "setting"),
        [
            ({"auth__enabled": True}, "auth.root_access_key"),
            ({"tls__enabled": True, "tls__clear_text": False}, "cluster.ca"),
        ],
    )
    def test_shards_must_be_able_to_call_each_other(
        self, settings: dict[str, Any], setting: str
    ) -> None:
        with pytest.raises(ConfigError, match=re.escape(setting)):
            loaded(cluster__shards=("a:1", "a:2"), **settings)

"""How clients reach each shard."""

from typing import Any

from latermq_broker.cluster.shard_endpoints import Addresses
from latermq_broker.config.cluster import ClusterConfig
from latermq_proto.apache.rocketmq.v2 import definition_pb2 as v2

ASKED = v2.Endpoints(scheme=v2.DOMAIN_NAME, addresses=[v2.Address(host="mq.example", port=99)])


def answered(**settings: Any) -> list[tuple[int, str, int]]:
    endpoints = Addresses(ClusterConfig(**settings)).endpoints(ASKED)
    return [(each.scheme, each.addresses[0].host, each.addresses[0].port) for each in endpoints]


def test_shards_of_one_host_are_where_the_client_asked() -> None:
    found = answered(shards=("0.0.0.0:8081", "0.0.0.0:8082"))
    assert found == [(v2.DOMAIN_NAME, "mq.example", 8081), (v2.DOMAIN_NAME, "mq.example", 8082)]


def test_shards_of_several_hosts_are_where_they_are() -> None:
    found = answered(shards=("10.0.0.1:8081", "b.example:8081", "[fd00::1]:8081"))
    assert found == [
        (v2.IPv4, "10.0.0.1", 8081), (v2.DOMAIN_NAME, "b.example", 8081),
        (v2.IPv6, "fd00::1", 8081),
    ]  # fmt: skip


def test_advertised_addresses_are_for_clients() -> None:
    shards, advertise = ("10.0.0.1:8081", "10.0.0.1:8082"), ("mq.example:80", "mq.example:81")
    found = answered(shards=shards, advertise=advertise)
    assert found == [(v2.DOMAIN_NAME, "mq.example", 80), (v2.DOMAIN_NAME, "mq.example", 81)]


def test_a_shard_of_several_machines_is_where_any_of_them_is() -> None:
    shards = ("10.0.0.1:81;10.0.0.2:81", "10.0.0.1:82;10.0.0.2:82")
    addresses = Addresses(ClusterConfig(shards=shards)).endpoints(ASKED)
    found = [(each.scheme, [(a.host, a.port) for a in each.addresses]) for each in addresses]
    assert found == [
        (v2.IPv4, [("10.0.0.1", 81), ("10.0.0.2", 81)]),
        (v2.IPv4, [("10.0.0.1", 82), ("10.0.0.2", 82)]),
    ]


def test_a_shard_of_several_ports_of_one_host_has_them_all() -> None:
    (endpoints,) = Addresses(ClusterConfig(shards=("127.0.0.1:81;127.0.0.1:82",))).endpoints(ASKED)
    assert [address.port for address in endpoints.addresses] == [81, 82]

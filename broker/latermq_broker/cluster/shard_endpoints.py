"""How clients reach each shard: the endpoints in a route. Pure.

Clients compare endpoints literally and reach a broker only by a name that is good where they are:
so shards of one host are answered under the host with which the client asked. A shard that may be
at several addresses has all of them, always in one order: only its owner's is open.
"""

from collections.abc import Sequence

from latermq_broker.config.addresses import addresses_of, listen_address
from latermq_broker.config.cluster import ClusterConfig
from latermq_broker.services.messaging.route import endpoints_of
from latermq_proto.apache.rocketmq.v2 import definition_pb2


class Addresses:
    """The endpoints of all shards, for whoever asks."""

    def __init__(self, config: ClusterConfig) -> None:
        places = [listen_address("cluster.shards", each) for each in config.all_addresses]
        self._ports = [port for _, port in places]
        several = len(places) > len(config.shards)
        hosts = {host for host, _ in places}
        self._one_host = len(hosts) == 1 and not several and not config.advertise
        self._fixed = [_endpoints_of_all(each) for each in config.advertise or config.shards]

    def endpoints(self, asked: definition_pb2.Endpoints) -> Sequence[definition_pb2.Endpoints]:
        """List the endpoints of each shard, by number.

        Args:
            asked: by which the client reached the cluster.
        """
        if not self._one_host:
            return self._fixed
        host = asked.addresses[0].host
        return [
            definition_pb2.Endpoints(
                scheme=asked.scheme, addresses=[definition_pb2.Address(host=host, port=port)]
            )
            for port in self._ports
        ]


def _endpoints_of_all(entry: str) -> definition_pb2.Endpoints:
    """Name the addresses of one shard, which are of one kind, for clients."""
    first, *others = map(endpoints_of, addresses_of(entry))
    for other in others:
        first.addresses.extend(other.addresses)
    return first

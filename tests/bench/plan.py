"""A plan past these machines: what of a large cluster is used up first, by measured costs.

    python -m bench.plan            prints the table of docs/cluster.md

Shards and their standbys are placed by rendezvous hash; what the busiest machine has to do is held
against what it is said to have. Costs are those of docs/benchmarks.md and docs/operating/size.md,
on one slow core; machines are assumed. No broker is started.
"""

from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from typing import Final

from latermq_proto.apache.rocketmq.v2 import definition_pb2, service_pb2

# Measured, by the uncompiled broker; compiled it takes half.
COMPILED: Final = 0.5
SEND_US: Final = 23.3  # a message, whatever comes with it …
CALL_US: Final = 119.0  # … and a call: 142 for one, 24.5 for each of 100
RECEIVE_US: Final = 32.0  # with its acknowledgement, 32 a call
APPLY_US: Final = 4.9  # at a warm standby: what a replay costs
SHIP_US: Final = 380.0  # of Kafka's client, for 64 KiB
LOG_BYTES: Final = 204  # beside a body
SHARD_BYTES: Final = 60e6  # a process at rest
CLIENT_BYTES: Final = 21 << 10
PENDING_BYTES: Final = 20
PARTITION_BYTES_S: Final = 28e6  # of Kafka, on the two cores where it was measured
HEARTBEAT_S: Final = 10.0
ROUTE_S: Final = 30.0  # between two looks of a client at the route of a topic
TURN_S: Final = 0.010  # for which a client's sends wait for each other, at most
CALL_MAX: Final = 100
CLIENT_FILES: Final = 1_024  # that a process may have open, by default
COPIES: Final = 5  # owner, standby, three of Kafka
# Assumed: each machine has a broker's shards and a node of Kafka.
CORES: Final = 16
MEMORY_BYTES: Final = 64e9
DISK_BYTES: Final = 8e12
DISK_BYTES_S: Final = 2e9
NETWORK_BYTES_S: Final = 25e9 / 8  # each way


@dataclass(frozen=True)
class Plan:
    """What is asked of the cluster."""

    title: str
    brokers: int = 100
    shards: int = 1_024
    messages_s: float = 10e6
    body_bytes: int = 1_024
    pending: float = 1e9
    clients: int = 10_000
    retention_s: float = 3 * 86_400
    spread: int = 1_024  # shards that have a topic
    evenly: bool = False  # placed with a bound on each broker, not by hash alone


PLANS: Final = (
    Plan("as it is"),
    Plan("an hour kept", retention_s=3_600),
    Plan("and placed evenly", retention_s=3_600, evenly=True),
    Plan("and a topic on 8 shards", retention_s=3_600, evenly=True, spread=8),
)


def ranked(shard: int, brokers: int) -> list[int]:
    """Return brokers by rendezvous hash: the first owns the shard, the second stands by."""

    def score(broker: int) -> bytes:
        return blake2b(b"%d %d" % (shard, broker), digest_size=8).digest()

    return sorted(range(brokers), key=score)[:2]


@cache
def busiest(shards: int, brokers: int) -> tuple[int, int]:
    """Return how many shards the broker with most of them owns, and for how many it stands by."""
    owned, standing_by = [0] * brokers, [0] * brokers
    for shard in range(shards):
        owner, standby = ranked(shard, brokers)
        owned[owner] += 1
        standing_by[standby] += 1
    return max(zip(owned, standing_by, strict=True), key=lambda pair: (sum(pair), pair))


def placed(plan: Plan) -> tuple[int, int]:
    """Return the shards of the busiest broker: owned, and stood by for."""
    if not plan.evenly:
        return busiest(plan.shards, plan.brokers)
    each = -(-plan.shards // plan.brokers)
    return each, each


@cache
def route_bytes(shards: int) -> int:
    """Return the size of an answer to QueryRoute: a queue for each shard, owner and standby."""
    topic = definition_pb2.Resource(name="orders-of-the-shop")
    addresses = [definition_pb2.Address(host=f"10.0.12.{each}", port=8_081) for each in (1, 2)]
    queues = [
        definition_pb2.MessageQueue(
            topic=topic, id=0, permission=definition_pb2.READ_WRITE,
            broker=definition_pb2.Broker(
                name=f"shard-{shard:04}",
                endpoints=definition_pb2.Endpoints(
                    scheme=definition_pb2.IPv4, addresses=addresses
                ),
            ),
            accept_message_types=[definition_pb2.NORMAL],
        )
        for shard in range(shards)
    ]  # fmt: skip
    return service_pb2.QueryRouteResponse(message_queues=queues).ByteSize()


def uses(plan: Plan) -> dict[str, float]:
    """Return how much of each thing is used at the busiest place, 1.0 being all of it."""
    owned, standing_by = placed(plan)
    rate = plan.messages_s / plan.shards
    stored = plan.body_bytes + LOG_BYTES
    bytes_s = rate * stored
    clients_of_shard = plan.clients * plan.spread / plan.shards
    a_call = min(max(plan.messages_s / plan.clients / plan.spread * TURN_S, 1.0), CALL_MAX)
    shipped = bytes_s / (64 << 10) * SHIP_US
    loop_us = COMPILED * (
        rate * (SEND_US + CALL_US / a_call + RECEIVE_US)
        + clients_of_shard / HEARTBEAT_S * (SEND_US + CALL_US)
    )
    asked = plan.clients / ROUTE_S / plan.shards
    standby_us = COMPILED * rate * APPLY_US
    cores = (owned * (loop_us + shipped) + standing_by * standby_us) / 1e6
    share = plan.shards / plan.brokers * bytes_s  # Kafka spreads its partitions evenly
    return {
        "disk: space": (
            plan.messages_s * plan.retention_s * stored * COPIES / plan.brokers
            + plan.pending * stored * COPIES / plan.brokers
        )
        / DISK_BYTES,
        "disk: writing": ((owned + standing_by) * bytes_s + 3 * share) / DISK_BYTES_S,
        "network, in": ((owned + standing_by) * bytes_s + 3 * share) / NETWORK_BYTES_S,
        "network, out": (
            2 * owned * bytes_s  # to consumers, to Kafka
            + 3 * share  # to two followers, to the standby
            + owned * asked * route_bytes(plan.spread)
        )
        / NETWORK_BYTES_S,
        "a shard's event loop": loop_us / 1e6,
        "cores": cores / CORES,
        "memory": (
            (owned + standing_by) * (SHARD_BYTES + plan.pending / plan.shards * PENDING_BYTES)
            + owned * clients_of_shard * CLIENT_BYTES
        )
        / MEMORY_BYTES,
        "a partition of Kafka": bytes_s / PARTITION_BYTES_S,
        "connections of a client": plan.spread / CLIENT_FILES,
    }


def limit(plan: Plan, name: str) -> str:
    """Return the rate at which one thing is used up, all else being as planned; "-": at none."""
    low, high = 0.0, 1e9
    for _ in range(80):
        middle = (low + high) / 2
        if uses(replace(plan, messages_s=middle))[name] < 1:
            low = middle
        else:
            high = middle
    return f"{low / 1e6:.1f} M/s" if 1 < low < 0.99e9 else "-"


def main() -> None:
    print("| | " + " | ".join(f"{plan.title} | gone at" for plan in PLANS) + " |")
    print("|---" * (1 + 2 * len(PLANS)) + "|")
    for name in uses(PLANS[0]):
        cells = []
        for plan in PLANS:
            cells += [f"{uses(plan)[name]:.0%}", limit(plan, name)]
        print(f"| {name} | " + " | ".join(cells) + " |")
    owned, standing_by = placed(PLANS[0])
    print(f"\nbusiest broker: owns {owned}, stands by for {standing_by}; ", end="")
    print(", ".join(f"a route over {each}: {route_bytes(each):,} bytes" for each in (8, 1_024)))


if __name__ == "__main__":
    main()

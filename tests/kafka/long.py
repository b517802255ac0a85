"""`make kafka-long`: 100,000 records, one in twenty failing, and kill -9 on every side.

RECORDS=100000 KILLS=20 SEED=1 ORDERED=1 python -m kafka.long
"""

import os
import random
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Final

from kafka.kill_worker import fails
from kafka.kills import CONFIG, GROUP, PARTITIONS, Workers, out_of_order, produce
from latermq.testing import BrokerProcess
from support.kafka.cluster import KafkaCluster

WORKERS: Final = 3
TOPIC: Final = "orders"


def main() -> None:
    records, kills = int(os.environ.get("RECORDS", "100000")), int(os.environ.get("KILLS", "20"))
    seed, ordered = int(os.environ.get("SEED", "1")), os.environ.get("ORDERED", "1") == "1"
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kafka-long-") as folder:
        room = Path(folder)
        (room / "broker.toml").write_text(CONFIG, encoding="utf-8")
        with (
            KafkaCluster(room / "kafka") as kafka,
            BrokerProcess(room / "latermq", "--config", str(room / "broker.toml")) as broker,
            Workers(room, kafka, broker) as workers,
        ):
            kafka.start()
            kafka.create_topic(TOPIC, PARTITIONS)
            workers.begin(TOPIC, WORKERS, ordered=ordered, retry="50ms")
            killed = load(workers, random.Random(seed), records, kills)
            everything = set(range(records))
            workers.until(lambda: set(workers.done()) >= everything - dead(broker), 600)
            done, letters = workers.done(), dead(broker)
    wrong = out_of_order(done) if ordered else []
    never = {number for number in everything if fails(number, 2)}
    print(
        f"records    {records}, {sum(fails(n, 1) for n in everything)} of which fail, seed {seed}"
    )
    print(f"killed     {', '.join(f'{what} {count}' for what, count in sorted(killed.items()))}")
    print(f"done       {len(set(done))}, {len(done) - len(set(done))} of them again")
    print(f"dead       {len(letters)}, {len(letters - never)} of them of being killed")
    print(f"lost       {len(everything - set(done) - letters)}")
    print(f"order      {f'{len(wrong)} out of it' if ordered else 'not asked for'}")
    print(f"took       {time.monotonic() - began_s:.0f} s")
    sys.exit(bool(everything - set(done) - letters or wrong))


def load(workers: Workers, chance: random.Random, records: int, kills: int) -> Counter[str]:
    """Produce, a part at a time, and kill: workers and brokers so often, Kafka some times."""
    acts = ["worker"] * kills + ["broker"] * kills + ["kafka"] * max(1, kills // 5)
    chance.shuffle(acts)
    (node,) = workers.kafka.nodes
    bounds = [records * index // len(acts) for index in range(len(acts) + 1)]
    for act, first, last in zip(acts, bounds, bounds[1:], strict=False):
        produce(workers.kafka, TOPIC, range(first, last))
        before = len(workers.done())
        wanted = before + chance.randrange(max(last - first, 2))
        left_s = time.monotonic() + 5
        workers.until(partial(enough, workers, wanted, left_s), 60)
        if act == "worker":
            workers.kill(chance)
        elif act == "broker":
            workers.broker.kill()
            workers.broker.start()
        else:
            node.kill()
            node.spawn()
            node.wait_ready()
    return Counter(acts)


def enough(workers: Workers, wanted: int, left_s: float) -> bool:
    """Tell whether so much was done; after a while, or what waits for leases would pace it."""
    return workers.did(wanted) or time.monotonic() > left_s


def dead(broker: BrokerProcess) -> set[int]:
    """Return the numbers of the records that are dead letters."""
    return {int(each.body) for each in broker.dead(GROUP)}


if __name__ == "__main__":
    main()

"""Two brokers or three on a log that Kafka keeps, and a load whose every promise is written down.

The clients are those of the crash suite, with the same ledger; beside them go one that keeps
message groups in order, and senders that time how long nobody answered.
"""

import asyncio
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from cluster.likeness import copies_of, differences, stop_alike
from cluster.ordered import Ordered
from cluster.places import Network, Place, Places
from crash.load import CALL_TIMEOUT_S, Load
from crash.read_back import Promises, make_names, read_back
from latermq_broker.runtime import TRY_AGAIN
from support.broker_process import READY_TIMEOUT_S, BrokerProcess
from support.kafka.cluster import KafkaCluster
from support.steady_senders import SteadySenders, drained, story_of

KILLED: Final = -signal.SIGKILL
WARM: Final = "follows with an engine"
REPLACED: Final = "no longer the owner"
REPLICAS, REPLICAS_MIN = 3, 2
ANSWERS: Final = 20  # of the senders, on either side of a fault
LOG_LINES: Final = 60  # of each broker, where nobody serves
CONFIG: Final = """
[replication]
kafka = "{kafka}"
cluster = "{cluster}"
{more}"""
MORE: Final = """
replicas = {replicas}
replicas_min = {replicas_min}
[store]
segment_bytes = 524288
message_body_bytes_max = 65536
checkpoint_records = 5000
checkpoint_interval_ms = 2000
[delivery]
receive_batch_max = 256
[server]
polling_ms_min = 50
drain_ms_max = 500
"""


class Drill(Promises):
    """One log, and who serves it.

    Args:
        directories: of the brokers, the first owner's first; the log's name is in theirs.
        places: where they run.
    """

    def __init__(
        self,
        kafka: KafkaCluster,
        network: Network,
        directories: list[Path],
        places: Places,
        rng: random.Random,
    ) -> None:
        super().__init__(rng, retention_ms=0)
        self.kafka = kafka
        self.network = network
        self.name = directories[0].name
        self.rng = rng
        self.ordered = Ordered(rng)
        self.silences_s: list[float] = []  # of each fault: the longest time without an OK
        self.moves_s: list[float] = []  # from an owner's last OK to the next one's first
        self.replaced = 0  # so many owners
        self.compared = 0  # so often what all of them know was the same
        self.late = 0  # OKs of an owner behind the first of the next one
        more = more_settings(len(kafka.nodes))
        config = CONFIG.format(kafka=kafka.bootstrap, cluster=self.name, more=more)
        self.brokers: Sequence[BrokerProcess] = [
            BrokerProcess(directory, config=config, listen=f"{place.host}:0", prefix=place.prefix)
            for directory, place in zip(directories, places, strict=True)
        ]
        self._places = dict(zip(self.brokers, places, strict=True))
        self.owner = self.brokers[0]
        self.senders = SteadySenders(*self.brokers)

    def __enter__(self) -> Self:
        return self

    def begin(self) -> None:
        """Have brokers and senders at work."""
        self.owner.start()
        for broker in self.standbys:
            self.stand_by(broker)
        make_names(self.owner.endpoint)
        self.ordered.make_names(self.owner.endpoint)
        self.senders.start()

    def __exit__(self, *_: object) -> None:
        self.senders.__exit__()
        for broker in self.brokers:
            broker.__exit__()

    @property
    def standbys(self) -> list[BrokerProcess]:
        return [broker for broker in self.brokers if broker is not self.owner]

    def place_of(self, broker: BrokerProcess) -> Place:
        return self._places[broker]

    def stand_by(self, broker: BrokerProcess) -> None:
        """Start a broker that follows the log."""
        broker.spawn()
        broker.wait_log(WARM)

    def who_serves(self) -> BrokerProcess:
        """Wait until somebody takes what is sent from now on; tell who.

        Of those who took some before, answers may still be on their way.
        """
        wanted = len(self.senders.acknowledged) + len(self.brokers)
        until_s = time.monotonic() + READY_TIMEOUT_S
        while len(self.senders.acknowledged) <= wanted:
            assert time.monotonic() < until_s, f"nobody serves\n{self._logs()}"
            time.sleep(0.02)
        endpoint = self.senders.acknowledged[wanted].endpoint
        [broker] = [broker for broker in self.brokers if broker.endpoint == endpoint]
        return broker

    def _logs(self) -> str:
        """Tell what each broker said last in this life."""
        return "\n".join(
            f"{broker.endpoint}, {'running' if broker.running else 'ended'}:\n"
            + "\n".join(broker.log_lines()[-LOG_LINES:])
            for broker in self.brokers
        )

    def under_load(self, fault: Callable[[], None], ends_with: int | None = TRY_AGAIN) -> None:
        """Do something to brokers or Kafka while clients work; then check what they know.

        Who races for a log may replace a new owner, too, so there may be several, one by one.

        Args:
            ends_with: the exit code of the first owner, if it was replaced; None: it goes on, and
                stands by. On a busy machine any may be replaced first, and end with TRY_AGAIN.
        """
        before = self.owner = self.who_serves()
        followed = before.logged(WARM)
        asyncio.run(self._under_load(fault))
        self.crashed()
        self.ordered.ledger.crashed()
        self.owner = self.who_serves()
        if ends_with is None and self.owner is not before:
            self._until_warm_or_ended(before, followed + 1)
        for broker in self.standbys:
            if broker is before and ends_with is None and broker.running:
                continue
            if broker is before or not broker.running:
                ended = broker.wait_end()
                wanted = ends_with if broker is before else TRY_AGAIN
                if ended.code not in (wanted, TRY_AGAIN):
                    self.complaints.append(f"it ended with {ended.code}\n{ended.stderr}")
                self.stand_by(broker)
        self.check()

    async def _under_load(self, fault: Callable[[], None]) -> None:
        endpoint = self.owner.endpoint
        over = asyncio.get_running_loop().create_future()
        load = Load(endpoint, self.ledger, self.rng, self.topics, self.anew)
        working = asyncio.gather(load.run(over), self.ordered.run(endpoint, over, CALL_TIMEOUT_S))
        try:
            await asyncio.to_thread(self.senders.wait_more, ANSWERS, endpoint)
            await asyncio.sleep(self.rng.random())
            began = len(self.senders.acknowledged)
            await asyncio.to_thread(fault)
            await asyncio.to_thread(self.who_serves)
        finally:
            over.set_result(None)
            _, errors = await working
        self.complaints += [*load.errors, *errors]
        story = story_of(self.senders.acknowledged[began - 1 :])
        self.silences_s.append(story.silence_s)
        self.replaced += story.new_owners
        self.moves_s += story.moves_s
        self.late += story.late

    def _until_warm_or_ended(self, broker: BrokerProcess, times: int) -> None:
        until_s = time.monotonic() + READY_TIMEOUT_S
        while broker.running and broker.logged(WARM) < times:
            assert time.monotonic() < until_s, "it does not stand by"
            time.sleep(0.05)

    def compare(self) -> None:
        """Stop all at one position of the log; what each knows by its own newest checkpoint is to
        be the same. They go on while that is looked at."""
        directories = [broker.data_dir for broker in self.brokers]
        with self.senders.held():
            stop_alike(self._pause, self._go_on, [directories])
            copies = copies_of(directories)
            self._go_on()
        self.complaints += differences(copies, directories[0].with_suffix(".toml"))
        self._have_all()
        self.crashed()  # calls that waited may have been dropped
        self.ordered.ledger.crashed()
        self.compared += 1
        self.check()

    def _have_all(self) -> None:
        """Start again who was replaced while all stood still: nobody else would stand by."""
        self.owner = self.who_serves()
        for broker in self.standbys:
            if not broker.running or broker.logged(REPLACED):
                broker.wait_end()
                self.stand_by(broker)

    def check(self) -> None:
        """Raises AssertionError with every promise broken so far."""
        self.complaints += self.ordered.ledger.violations
        self.ordered.ledger.violations.clear()
        if self.late:
            self.complaints.append(f"{self.late} OK answers behind the next owner's first")
        super().check()

    def read_back(self) -> int:
        """Receive everything there is, for every group, and compare; return how much was promised.

        Raises AssertionError with every promise broken.
        """
        endpoint = self.owner.endpoint
        self.senders.__exit__()
        time.sleep(max(place.behind_s for place in self._places.values()))  # then all is due
        self._compare()
        promised = {sent.message_id for sent in self.senders.acknowledged}
        received = drained(endpoint)
        missing = promised - set(received)
        if missing:
            self.complaints.append(f"{len(missing)} of the senders' messages are lost")
        if len(received) > len(set(received)):
            self.complaints.append("what was acknowledged came again")
        self.ordered.read_back(endpoint)
        read_back(self, endpoint)
        self.check()
        return len(promised) + len(self.ledger.messages) + len(self.ordered.ledger.messages)

    def _compare(self) -> None:
        """Kill all when their logs are the same, see what each knows, and start them again."""
        directories = [broker.data_dir for broker in self.brokers]
        stop_alike(self._pause, self._go_on, [directories])
        for broker in self.brokers:
            broker.kill()
        self.complaints += differences(copies_of(directories), directories[0].with_suffix(".toml"))
        self.crashed()
        self.ordered.ledger.crashed()
        self.owner.start()
        for broker in self.standbys:
            self.stand_by(broker)

    def _pause(self) -> None:
        for broker in self.brokers:
            broker.pause()

    def _go_on(self) -> None:
        """On a busy machine an owner may stand still for so long that it is replaced."""
        for broker in self.brokers:
            broker.go_on()
        for broker in self.brokers:
            if not broker.running:
                broker.wait_end()
                self.stand_by(broker)


def more_settings(nodes: int) -> str:
    """Write what brokers of a drill are told beside where Kafka is, which has so many nodes."""
    replicas = min(nodes, REPLICAS)
    return MORE.format(replicas=replicas, replicas_min=min(replicas, REPLICAS_MIN))

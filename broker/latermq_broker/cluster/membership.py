"""From a configuration and a directory to a shard: what is checked, and what is written."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from latermq_broker.catalog.catalog import Catalog
from latermq_broker.cluster.mark import Mark, require_shard, write_mark
from latermq_broker.cluster.metrics_label import labelled
from latermq_broker.cluster.placement import FIRST, ORDERLESS, shard_name
from latermq_broker.cluster.shard import Shard
from latermq_broker.config.config import Config
from latermq_broker.engine.engine import Engine
from latermq_broker.services.call.handler import Committer


class Membership:
    """One shard of a cluster, from its start on.

    Raises:
        StoreUnusableError: the directory is of another shard.
    """

    def __init__(self, config: Config, directory: Path) -> None:
        cluster = config.cluster
        self._directory = directory
        self._mark = require_shard(directory, cluster.shard, len(cluster.shards))
        server = replace(config.server, broker_name=shard_name(cluster.shard))
        self.config: Final = replace(config, server=server)

    def join(self, engine: Engine, committer: Committer) -> Shard:
        """Make the shard, when its store is open; call in a running loop."""
        cluster, catalog = self.config.cluster, engine.catalog
        is_new = self._mark is None and not catalog.topics()  # not the first owner of a log
        if self._mark is None:
            pins = {} if self.config.replication.kafka else pins_of(catalog)
            self._mark = Mark(cluster.shard, len(cluster.shards), pins)
            write_mark(self._directory, self._mark)
        return Shard(engine, committer, self.config, self._directory, self._mark, is_new=is_new)

    def page(self, pieces: Iterable[str]) -> Iterator[str]:
        """Yield a page of metrics of who stands by for this shard with it in every sample."""
        return labelled(pieces, self.config.cluster.shard)


def pins_of(catalog: Catalog) -> dict[str, int]:
    """Pin what a broker that was alone has in places, where it becomes the first shard."""
    return {
        topic.name: FIRST
        for topic in catalog.topics()
        if topic.type not in ORDERLESS and not topic.internal
    }

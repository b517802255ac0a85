"""Reads one Spark partition: pages from the broker become Arrow record batches.

Runs in Spark's workers, possibly twice for one partition (a retried or speculative task): it has no
effect on the broker. One page is one batch.
"""

from collections.abc import Generator, Sequence

import pyarrow as pa

from latermq.spark.columns import BatchBuilder
from latermq.spark.losses import Losses
from latermq.spark.places import shard_of, topic_of
from latermq.spark.queue_client import OffsetGoneError, QueueClient, TopicGoneError
from latermq.spark.ranges import QueueRange
from latermq.spark.schema import wanted_of_broker


def read(
    client: QueueClient, names: Sequence[str], ranges: Sequence[QueueRange]
) -> Generator[pa.RecordBatch]:
    """Yield the rows of these ranges, in order, with the columns `names`."""
    builder = BatchBuilder(names)
    fields = wanted_of_broker(names)
    losses = Losses(fail=client.options.fail_on_data_loss)
    for wanted in ranges:
        yield from _read_range(client, builder, fields, losses, wanted)


def _read_range(
    client: QueueClient,
    builder: BatchBuilder,
    fields: list[str],
    losses: Losses,
    wanted: QueueRange,
) -> Generator[pa.RecordBatch]:
    position = wanted.start
    while position < wanted.end:
        try:
            for page in client.read(wanted._replace(start=position), fields):
                topic, shard = topic_of(wanted.topic), shard_of(wanted.topic)
                yield builder.build(topic, wanted.queue_id, page.rows, shard)
                position = page.rows[-1].queue_offset + 1
        except TopicGoneError:
            losses.deleted(wanted.topic)
            return
        except OffsetGoneError as error:
            if error.earliest <= position:
                losses.cut_short(wanted.topic, wanted.queue_id, wanted.end, error.next_offset)
                return
            losses.retained(wanted.topic, wanted.queue_id, position, error.earliest, wanted.end)
            position = error.earliest

"""The offset that Spark keeps in its checkpoint.

    {"version": 1,
     "topics": {"%DLQ%billing": {"0": 1234}},   next offset to read
     "epochs": {"%DLQ%billing": "7f3a09…"}}     the topics' creation ids

Spark compares offsets as JSON text: the same offsets with their keys in another order are "new
data". So there is one encoder (topics by name, queues by number), and one text for each offset.

An epoch may end in `~1`, `~2`, …: how often this query had to begin again although the topic's
creation id stayed the same, because the broker lost the end of its log (`failOnDataLoss=false`
only).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from latermq.spark.errors import OffsetError

VERSION: Final = 1
_AGAIN: Final = "~"


@dataclass(frozen=True, slots=True)
class Offsets:
    """Next offset to read, by topic and queue. A topic without an epoch did not exist yet."""

    topics: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    epochs: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> dict[str, Any]:
        """Encode canonically: equal offsets give equal JSON text."""
        return {
            "version": VERSION,
            "topics": {
                topic: {str(queue_id): queues[queue_id] for queue_id in sorted(queues)}
                for topic, queues in sorted(self.topics.items())
            },
            "epochs": {topic: epoch for topic, epoch in sorted(self.epochs.items()) if epoch},
        }

    @classmethod
    def decode(cls, document: Mapping[str, Any]) -> Self:
        """
        Raises:
            OffsetError: another version's, or not ours at all.
        """
        version = document.get("version")
        if version != VERSION:
            raise OffsetError(
                f"the checkpoint's offsets are of version {version!r}, this latermq reads version "
                f"{VERSION}: use the latermq that wrote them, or a new checkpoint"
            )
        try:
            topics = {
                topic: {int(queue_id): int(offset) for queue_id, offset in queues.items()}
                for topic, queues in document["topics"].items()
            }
            epochs = {topic: str(epoch) for topic, epoch in document["epochs"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            text = json.dumps(document)[:200]
            raise OffsetError(f"the checkpoint's offsets cannot be read: {text}") from error
        return cls(topics, epochs)


def creation_id(epoch: str) -> str:
    """Return the broker's own part of a recorded epoch."""
    return epoch.partition(_AGAIN)[0]


def begun_again(epoch: str) -> str:
    """Make the epoch to record when a topic with the same creation id must be read anew."""
    creation, _, count = epoch.partition(_AGAIN)
    return f"{creation}{_AGAIN}{int(count or 0) + 1}"

"""The offset that Spark keeps in its checkpoint.

    {"version": 1,
     "topics": {"%DLQ%billing": {"0": 1234}},   next offset to read
     "epochs": {"%DLQ%billing": "7f3a09…"},     the topics' creation ids
     "lives": {"%DLQ%billing": {"0": 71…}}}     in which life of the broker the message before the
                                                offset came, as far as that is known

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
    lives: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def encode(self) -> dict[str, Any]:
        """Encode canonically: equal offsets give equal JSON text."""
        document: dict[str, Any] = {
            "version": VERSION,
            "topics": _encode(self.topics),
            "epochs": {topic: epoch for topic, epoch in sorted(self.epochs.items()) if epoch},
        }
        lives = {topic: queues for topic, queues in self.lives.items() if queues}
        return {**document, "lives": _encode(lives)} if lives else document

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
            topics = _decode(document["topics"])
            lives = _decode(document.get("lives", {}))
            epochs = {topic: str(epoch) for topic, epoch in document["epochs"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            text = json.dumps(document)[:200]
            raise OffsetError(f"the checkpoint's offsets cannot be read: {text}") from error
        return cls(topics, epochs, lives)


def _encode(topics: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    return {
        topic: {str(queue_id): queues[queue_id] for queue_id in sorted(queues)}
        for topic, queues in sorted(topics.items())
    }


def _decode(topics: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[int, int]]:
    return {
        topic: {int(queue_id): int(number) for queue_id, number in queues.items()}
        for topic, queues in topics.items()
    }


def creation_id(epoch: str) -> str:
    """Return the broker's own part of a recorded epoch."""
    return epoch.partition(_AGAIN)[0]


def begun_again(epoch: str) -> str:
    """Make the epoch to record when a topic with the same creation id must be read anew."""
    creation, _, count = epoch.partition(_AGAIN)
    return f"{creation}{_AGAIN}{int(count or 0) + 1}"

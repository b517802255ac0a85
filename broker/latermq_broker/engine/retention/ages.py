"""How long messages stay: by what is set for their topic, else by what is set for all of them.

An age is in milliseconds; 0 is no age: what is read stays for ever, what is unread until the disk
is nearly full. What is unread stays at least as long as what is read.
"""

from latermq_broker.catalog.catalog import UNSET, Catalog, Topic
from latermq_broker.config.config import StoreConfig


class Ages:
    def __init__(self, config: StoreConfig, catalog: Catalog) -> None:
        self._config = config
        self._catalog = catalog
        self._changes = 0  # how often an age became another one
        self._version = -1  # of the catalogue, for which the next two hold
        self._own: list[Topic] = []
        self._shortest_ms = 0

    def reconfigure(self, config: StoreConfig) -> None:
        """Go on with other ages for all."""
        self._config = config
        self._changes += 1
        self._version = -1

    def read_ms(self, topic: Topic) -> int:
        """Tell the age of what every group of the topic has read."""
        own_ms = topic.retention_ms
        return self._config.retention_ms if own_ms == UNSET else own_ms

    def unread_ms(self, topic: Topic) -> int:
        """Tell the age of what a group of the topic has not read."""
        own_ms = topic.unread_retention_ms
        age_ms = self._config.unread_retention_ms if own_ms == UNSET else own_ms
        return max(age_ms, self.read_ms(topic)) if age_ms else 0

    @property
    def own(self) -> list[Topic]:
        """Return the topics whose messages have an age of their own."""
        self._look()
        return self._own

    @property
    def changes(self) -> int:
        """Count how often an age became another one."""
        self._look()
        return self._changes

    @property
    def shortest_ms(self) -> int:
        """Return the shortest age of what is read, of all topics; 0: there is none."""
        self._look()
        return self._shortest_ms

    def _look(self) -> None:
        if self._version == self._catalog.version:
            return
        self._version = self._catalog.version
        before = {topic.id: _ages(topic) for topic in self._own}
        self._own = [topic for topic in self._catalog.topics() if has_own(topic)]
        if before != {topic.id: _ages(topic) for topic in self._own}:
            self._changes += 1
        ages = [self._config.retention_ms, *(topic.retention_ms for topic in self._own)]
        self._shortest_ms = min((age_ms for age_ms in ages if age_ms > 0), default=0)


def has_own(topic: Topic) -> bool:
    """Tell whether an age is set for the topic itself."""
    return _ages(topic) != (UNSET, UNSET)


def _ages(topic: Topic) -> tuple[int, int]:
    return topic.retention_ms, topic.unread_retention_ms

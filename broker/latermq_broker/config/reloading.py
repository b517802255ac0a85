"""What of the settings a broker takes on while it runs, and what the file says now.

Only what `LIVE` names: numbers that are asked for anew each time they count. Sizes of files, ports,
what an answer promises and who may come in are settled at the start, and need a new one.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from latermq_broker.config.config import Config
from latermq_broker.config.core_bounds import settings_of

LIVE: Final = frozenset({
    "log.level",
    "log.json",
    "server.drain_ms_max",
    "server.replace_drain_ms_max",
    "http2.connections_max",
    "http2.connections_per_address_max",
    "http2.connects_burst",
    "http2.connects_per_s",
    "http2.connects_per_address_burst",
    "http2.connects_per_address_per_s",
    "store.retention_ms",
    "store.unread_retention_ms",
    "store.retention_bytes",
    "store.dead_letter_retention_ms",
    "store.disk_low_percent",
    "store.disk_full_percent",
    "catalog.auto_create",
    "catalog.auto_create_groups",
    "catalog.default_queue_count",
    "catalog.queue_count_max",
    "catalog.topic_count_max",
    "catalog.group_count_max",
})  # fmt: skip
LIVE_STANDING_BY: Final = frozenset({"log.level", "log.json"})


@dataclass(frozen=True, slots=True)
class Reread:
    """What came of reading the settings again.

    Args:
        config: to go on with.
        changed: what it takes on, by name.
        waiting: names of what differs from how the broker started, and needs a new start.
    """

    config: Config
    changed: Mapping[str, object]
    waiting: Collection[str]


class Settings:
    """The settings of one process.

    Args:
        load: reads them again, from file, environment and flags. Raises ConfigError.
        started: as they were read at the start.
    """

    def __init__(self, load: Callable[[], Config], started: Config) -> None:
        self._load = load
        self._as_read = started
        self._taken_on: dict[str, object] = {}

    def over(self, config: Config) -> Config:
        """Return a configuration with what was taken on since the start."""
        return _with(config, self._taken_on)

    def reread(self, running: Config, live: Collection[str] = LIVE) -> Reread:
        """Read them again, and say what the broker is to go on with.

        Raises:
            ConfigError: they are wrong, in themselves or together with what stays; nothing changed.
        """
        before, now = _values(self._as_read), _values(self._load())
        differing = {name: value for name, value in now.items() if value != before[name]}
        changed = {name: value for name, value in differing.items() if name in live}
        config = _with(running, changed)
        self._as_read = _with(self._as_read, changed)
        self._taken_on |= changed
        return Reread(config, changed, [name for name in differing if name not in live])


def _values(config: Config) -> dict[str, object]:
    """Return each setting's value by its name."""
    return {
        f"{section.name}.{setting.name}": getattr(getattr(config, section.name), setting.name)
        for section in fields(config)
        for setting in settings_of(getattr(config, section.name))
    }


def _with(config: Config, values: Mapping[str, object]) -> Config:
    """Raises ConfigError: the whole does not go together."""
    by_section: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        section, _, setting = name.partition(".")
        by_section.setdefault(section, {})[setting] = value
    sections = {
        section: replace(getattr(config, section), **changed)
        for section, changed in by_section.items()
    }
    return replace(config, **sections)

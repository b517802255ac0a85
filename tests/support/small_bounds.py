"""Bounds of the core so small that a short life or example meets them."""

from copy import copy
from dataclasses import replace
from typing import Final, TypeVar

from latermq_broker.config.config import Config, DeliveryConfig, StoreConfig
from latermq_broker.config.core_bounds import ScanBounds, StoreBounds, TimerBounds
from support.engine_rig import SMALL_STORE

Section = TypeVar("Section", StoreConfig, DeliveryConfig)

SMALL_BLOCKS: Final = StoreBounds(index_block_entries_max=64)  # of the message index
SMALL_RUNS: Final = StoreBounds(timer=TimerBounds(run_entries_min=2, merge_runs_min=2))
SMALLEST: Final = replace(SMALL_BLOCKS, timer=SMALL_RUNS.timer)
SHORT_SCANS: Final = ScanBounds(ordered_entries_max=4)


def bounded(section: Section, bounds: StoreBounds | ScanBounds) -> Section:
    """Return a copy of a section, which may have what no setting may be, with those bounds."""
    bound = copy(section)
    object.__setattr__(bound, "bounds", bounds)
    return bound


def with_small_runs(config: Config) -> Config:
    return replace(config, store=bounded(config.store, SMALL_RUNS))


MODEL_STORE: Final = bounded(SMALL_STORE, SMALL_BLOCKS)

"""Thresholds of a disk that fills and empties, taken later on the way back."""

from dataclasses import replace
from typing import Any

import pytest

from latermq_broker.config.config import StoreConfig
from latermq_broker.errors import ConfigError, StoreBusyError, StoreFullError
from latermq_broker.store.disk_pressure import DiskPressure
from latermq_broker.store.files import Space

MIB = 1 << 20
CONFIG = StoreConfig(segment_bytes=64 * MIB)
TOTAL = 10_000 * MIB


def look(disk: DiskPressure, free_mib: int, total: int = TOTAL) -> tuple[bool, bool]:
    disk.look(Space(free_mib * MIB, total))
    return disk.low, disk.full


def test_low_and_full_come_and_go_with_a_margin() -> None:
    disk = DiskPressure(CONFIG)
    assert look(disk, 1_000) == (False, False)
    assert look(disk, 999) == (True, False)
    assert look(disk, 1_199) == (True, False)
    assert look(disk, 1_200) == (False, False)
    assert look(disk, 499) == (True, True)
    assert look(disk, 624) == (True, True)
    assert look(disk, 625) == (True, False)
    assert disk.full_count == 1


def test_two_segments_must_fit_however_small_the_disk() -> None:
    disk = DiskPressure(CONFIG)
    assert look(disk, 127, 200 * MIB) == (True, True)
    assert look(disk, 160, 200 * MIB) == (False, False)


def test_a_send_is_refused_with_what_is_needed_and_what_there_is() -> None:
    disk = DiskPressure(CONFIG)
    disk.admit()
    look(disk, 400)
    with pytest.raises(StoreFullError) as refused:
        disk.admit()
    assert str(refused.value).startswith(
        f"disk full: need {500 * MIB:,} bytes free, there are {400 * MIB:,};"
    )
    assert disk.sends_refused == 1


def test_what_could_not_be_prepared_keeps_it_full_until_it_can() -> None:
    disk = DiskPressure(CONFIG)
    disk.no_room(StoreFullError("disk full: the log needs a further segment (quota)"))
    assert look(disk, 9_000) == (False, True)  # a quota, perhaps
    disk.room()
    assert (disk.full, disk.full_count) == (False, 1)


def test_the_refusal_names_what_led_to_it() -> None:
    disk = DiskPressure(CONFIG)
    look(disk, 400)
    look(disk, 600)
    with pytest.raises(StoreFullError, match=f"need {625 * MIB:,} .* there are {600 * MIB:,};"):
        disk.admit()
    look(disk, 9_000)
    disk.no_room(StoreFullError("disk full: the log needs a further segment (quota)"))
    with pytest.raises(StoreFullError, match=r"segment \(quota\); sends are refused"):
        disk.admit()


def test_a_disk_without_inodes_is_full() -> None:
    disk = DiskPressure(CONFIG)
    files = [None, 17, 15, 19, 20]
    full = []
    for count in files:
        disk.look(Space(9_000 * MIB, 10_000 * MIB, files=count))
        full.append(disk.full)
        if count == 15:
            assert "inodes for files: need 16 free, there are 15" in disk.why
    assert full == [False, False, True, True, False]
    assert disk.full_count == 1
    assert disk.why == ""


def test_what_could_not_be_read_makes_no_disk_full() -> None:
    disk = DiskPressure(CONFIG)
    error = StoreBusyError("Too many open files")
    assert disk.ran_out(error) is error
    assert not disk.full


def test_0_percent_turns_both_off() -> None:
    disk = DiskPressure(StoreConfig(disk_low_percent=0, disk_full_percent=0))
    assert look(disk, 0) == (False, False)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"retention_ms": -1}, "store.retention_ms"),
        ({"dead_letter_retention_ms": -1}, "store.dead_letter_retention_ms"),
        ({"retention_bytes": 511 * MIB}, "store.retention_bytes"),
        ({"disk_full_percent": 11}, "store.disk_full_percent"),
        ({"disk_low_percent": 100}, "store.disk_full_percent"),
    ],
)
def test_settings_out_of_bounds(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        replace(StoreConfig(), **settings)

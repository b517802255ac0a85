"""Directories and manifests that somebody changed: everything that reads them ends in words.

`make hostile` does the same for longer, with seeds of its own.
"""

import logging
from collections.abc import Iterator

import pytest

from hostile.cases import directories, run_directory, run_manifest
from hostile.run import RSS_MIB_MAX, bounded, rss_mib

CASES = 60
MANIFESTS = 300


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What a broker says of what it finds is not looked at."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, 6 * CASES, CASES))
def test_directories(first: int) -> None:
    disks = directories()
    before = rss_mib()
    for seed in range(first, first + CASES):
        with bounded():
            run_directory(disks, seed)
    assert rss_mib() - before < RSS_MIB_MAX


def test_manifests() -> None:
    for seed in range(MANIFESTS):
        run_manifest(seed)

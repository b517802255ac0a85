"""Each test here runs with each wheel that was built."""

from pathlib import Path

import pytest

from support.published import WHEELS, kind


@pytest.fixture(scope="module", params=WHEELS, ids=kind)
def wheel(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found

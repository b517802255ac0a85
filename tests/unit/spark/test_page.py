"""docs/spark.md names every option and every column, and nothing else."""

import re
from pathlib import Path
from typing import Final

import pytest

from latermq.spark import errors, options
from latermq.spark.errors import OptionError, SourceError
from latermq.spark.schema import COLUMNS

PAGE: Final = (Path(__file__).resolve().parents[3] / "docs" / "spark.md").read_text("utf-8")


def first_cells(heading: str) -> set[str]:
    """The words in code in the first column of the tables under a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (.*?) \|", section, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`([^`%]+)`", cell)}


def test_columns() -> None:
    assert first_cells("The schema is the projection") == set(COLUMNS)


def test_options() -> None:
    named = first_cells("Options")
    assert len(named) == 23
    with pytest.raises(OptionError) as caught:
        options.parse({"zzzzzzzz": ""})
    assert (
        set(re.findall(r"\b[a-z]\w+[a-z]\b", str(caught.value).partition("there are")[2])) == named
    )


def test_error_codes() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.code for kind in kinds if issubclass(kind, SourceError)} - {SourceError.code}
    assert set(re.findall(r"`(LATERMQ_\w+)`", PAGE)) == codes

"""docs/compatibility.md has a cell for each client and capability that is tested, and no other."""

import re
from pathlib import Path
from typing import Final

import pytest

from interop import compatibility, foreign, matrix
from interop.client_cases import ClientCases
from interop.credentials_cases import CredentialsCases
from interop.fifo_cases import FifoCases
from interop.lite_cases import LiteCases
from interop.priority_cases import PriorityCases
from interop.question_cases import QuestionCases
from interop.transaction_cases import TransactionCases

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
CASES: Final = [
    name
    for cases in (
        ClientCases,
        TransactionCases,
        FifoCases,
        PriorityCases,
        LiteCases,
        QuestionCases,
        CredentialsCases,
    )
    for name in vars(cases)
    if name.startswith("test_")
]


def rows() -> list[list[str]]:
    part = compatibility.part(PAGE.read_text(encoding="utf-8"), compatibility.MATRIX)
    return [
        [word.strip() for word in line.strip("|").split("|")]
        for line in part.splitlines()
        if line.startswith("|") and not line.startswith("|---")
    ]


def test_every_case_belongs_to_one_capability() -> None:
    listed = [test for tests in matrix.CAPABILITIES.values() for test in tests]
    assert sorted(listed) == sorted(CASES)


def test_what_clients_lack_and_get_wrong_is_something_that_is_tested() -> None:
    for client in matrix.CLIENTS.values():
        assert set(client.lacks) <= {*matrix.CAPABILITIES, matrix.TLS_ROW}
        assert set(client.own_faults) <= set(CASES)


def test_the_page_has_the_clients_that_are_built() -> None:
    versions = rows()[1 : len(matrix.CLIENTS) + 1]
    assert [row[0] for row in versions] == [client.title for client in matrix.CLIENTS.values()]
    for name, row in zip(matrix.CLIENTS, versions, strict=True):
        if name not in matrix.RUN:
            assert row[2:] == ["-", "never"]
        elif name in foreign.RECIPES:
            pinned = "".join(
                path.read_text(encoding="utf-8")
                for path in (foreign.HERE / name).iterdir()
                if path.suffix in {".json", ".mod", ".xml", ".toml", ".txt"}
            )
            assert row[2] in pinned


def test_the_page_has_the_cells_that_are_tested() -> None:
    head, *cells = rows()[len(matrix.CLIENTS) + 1 :]
    assert head[2:] == [client.title for client in matrix.CLIENTS.values()]
    expected = {name: str(len(tests)) for name, tests in matrix.CAPABILITIES.items()}
    assert {row[0]: row[1] for row in cells} == {**expected, matrix.TLS_ROW: "all"}
    lacking = {
        (title, name)
        for name, *row in cells
        for title, cell in zip(head[2:], row[1:], strict=True)
        if cell.startswith(matrix.NOT_IN_CLIENT)
    }
    assert lacking == {
        (client.title, capability)
        for client in matrix.CLIENTS.values()
        for capability in client.lacks
    }


@pytest.mark.parametrize("name", matrix.RUN)
def test_no_client_that_can_be_run_was_skipped_or_failed(name: str) -> None:
    head, *cells = rows()[len(matrix.CLIENTS) + 1 :]
    column = head.index(matrix.CLIENTS[name].title)
    kinds = {re.sub(r" \(\d+\)$", "", row[column]) for row in cells}
    assert kinds <= {compatibility.PASSED, compatibility.OWN_FAULT, matrix.NOT_IN_CLIENT}

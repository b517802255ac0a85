"""`make interop`: the tests of this directory, and a matrix of official clients and what they can.

Python and Node.js, as in CI; with `--clients all` every client, with TLS too. Each client's result
is kept as JSON in `.cache/interop/results/`, so clients may be run one by one; `--page` writes the
matrix of what is there into docs/compatibility.md.
"""

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from interop import compatibility, foreign, matrix

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = foreign.CACHE / "results"
MATRIX_NODE: Final = "test_matrix.py::"


class Recorder:
    """Collects how each case of the matrix ended, by client and test."""

    def __init__(self) -> None:
        self.cases: dict[str, dict[str, list[str]]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        _, found, case = report.nodeid.partition(MATRIX_NODE)
        if not found:
            return
        test, _, run = case.partition("::")[2].rstrip("]").partition("[")
        ended = self._ended(report)
        if ended and self.cases.setdefault(run, {}).get(test, [""])[0] != compatibility.FAILED:
            self.cases[run][test] = ended

    def _ended(self, report: Any) -> list[str]:
        """Outcome and reason; nothing for a phase that says nothing by itself."""
        if hasattr(report, "wasxfail"):
            if report.outcome == "skipped":
                return [compatibility.OWN_FAULT, report.wasxfail]
            return [compatibility.FAILED, "expected to fail, and did not"]
        if report.outcome == "failed":
            return [compatibility.FAILED, str(report.longrepr).splitlines()[-1]]
        if report.outcome == "skipped":
            return [compatibility.SKIPPED, report.longrepr[2].removeprefix("Skipped: ")]
        return [compatibility.PASSED, ""] if report.when == "call" else []


def keep(recorder: Recorder) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    for run, cases in recorder.cases.items():
        built = any(outcome != compatibility.SKIPPED for outcome, _ in cases.values())
        result = {
            "version": foreign.version(run.removesuffix(matrix.TLS)) if built else "",
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "cases": cases,
        }
        (RESULTS / f"{run}.json").write_text(json.dumps(result, indent=1), encoding="utf-8")


def kept() -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text("utf-8")) for path in RESULTS.glob("*.json")}


def words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make interop", description=__doc__)
    parser.add_argument("--clients", default=",".join(matrix.IN_CI), help="`all`, or some by name")
    parser.add_argument("--matrix-only", action="store_true", help="not the other tests here")
    parser.add_argument("--page", action="store_true", help="write docs/compatibility.md")
    return parser.parse_args()


def main() -> int:
    asked = words()
    clients = ",".join(matrix.EVERY_RUN) if asked.clients == "all" else asked.clients
    code = 0
    if clients:
        os.environ["LATERMQ_INTEROP_CLIENTS"] = clients
        recorder = Recorder()
        tests = ROOT / "tests" / "interop" / ("test_matrix.py" if asked.matrix_only else "")
        options = [str(tests), "--numprocesses=auto", "--workers-per-core=2"]
        code = int(pytest.main(options, plugins=[recorder]))
        keep(recorder)
    results = {run: result for run, result in kept().items() if run in matrix.EVERY_RUN}
    print(compatibility.screen(results))
    if asked.page:
        page = ROOT / "docs" / "compatibility.md"
        compatibility.write(page, compatibility.MATRIX, compatibility.table(results))
    return code


if __name__ == "__main__":
    sys.exit(main())

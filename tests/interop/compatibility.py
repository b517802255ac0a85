"""What docs/compatibility.md says of the clients: cells from results, and the page's text.

A result is what `run` keeps of one client: its version, a date, and by test how it ended.
"""

from pathlib import Path
from typing import Any, Final

from interop import matrix

PASSED: Final = "passed"
FAILED: Final = "FAILED"
SKIPPED: Final = "skipped"
OWN_FAULT: Final = "the client's fault"
MATRIX: Final = "matrix"  # the parts of the page that are written by programs
MASS: Final = "mass"

Results = dict[str, Any]


def cell(results: Results, run: str, capability: str) -> tuple[str, str]:
    """How a client does with a capability, and why if not well: the worst of its cases."""
    client = matrix.client_of(run)
    if client.skipped:
        return SKIPPED, client.skipped
    if capability in client.lacks:
        return matrix.NOT_IN_CLIENT, client.lacks[capability]
    result = results.get(run)
    if result is None:
        return SKIPPED, "not run"
    cases = [
        result["cases"].get(test, (SKIPPED, f"{test} not run"))
        for test in matrix.CAPABILITIES[capability]
    ]
    for outcome in (FAILED, OWN_FAULT, SKIPPED):
        for ended, why in cases:
            if ended == outcome:
                return outcome, why
    return PASSED, ""


def tls_cell(results: Results, name: str) -> tuple[str, str]:
    """The worst of all the client's cells over TLS; what it lacks does not count."""
    client = matrix.CLIENTS[name]
    if client.skipped:
        return SKIPPED, client.skipped
    if matrix.TLS_ROW in client.lacks:
        return matrix.NOT_IN_CLIENT, client.lacks[matrix.TLS_ROW]
    cells = [cell(results, name + matrix.TLS, capability) for capability in matrix.CAPABILITIES]
    for outcome in (FAILED, SKIPPED):
        for ended, why in cells:
            if ended == outcome:
                return outcome, why
    return PASSED, ""


def rows(results: Results) -> list[tuple[str, list[tuple[str, str]]]]:
    """Each capability with the cells of all clients, then the row of TLS."""
    every = [
        (capability, [cell(results, name, capability) for name in matrix.CLIENTS])
        for capability in matrix.CAPABILITIES
    ]
    return [*every, (matrix.TLS_ROW, [tls_cell(results, name) for name in matrix.CLIENTS])]


def screen(results: Results) -> str:
    """For a terminal, with the reasons below."""
    width = max(map(len, (*matrix.CAPABILITIES, matrix.TLS_ROW)))
    titles = [client.title for client in matrix.CLIENTS.values()]
    lines = ["", f"{'':{width}}  " + "  ".join(f"{title:13}" for title in titles)]
    reasons: list[str] = []
    for capability, cells in rows(results):
        shown = "  ".join(f"{outcome[:13]:13}" for outcome, _ in cells)
        lines.append(f"{capability:{width}}  {shown}")
        for title, (outcome, why) in zip(titles, cells, strict=True):
            reason = f"{title}: {outcome}: {why}" if outcome == SKIPPED else ""
            reason = reason or (f"{title}: {capability}: {outcome}: {why}" if why else "")
            if reason and reason not in reasons:
                reasons.append(reason)
    return "\n".join([*lines, "", *reasons])


def table(results: Results) -> str:
    """For the page: versions, the matrix, and the reasons of all that did not pass."""
    lines = ["| client | package | version | run on |", "|---|---|---|---|"]
    for name, client in matrix.CLIENTS.items():
        result = results.get(name, {"version": "", "date": ""})
        version, date = result["version"] or "-", result["date"] or "never"
        lines.append(f"| {client.title} | {client.package} | {version} | {date} |")
    titles = [client.title for client in matrix.CLIENTS.values()]
    lines += ["", f"| | cases | {' | '.join(titles)} |", "|---|---|" + "---|" * len(titles)]
    notes: list[str] = []
    for capability, cells in rows(results):
        count = len(matrix.CAPABILITIES.get(capability, ())) or "all"
        shown = [outcome + _note(notes, why) for outcome, why in cells]
        lines.append(f"| {capability} | {count} | {' | '.join(shown)} |")
    lines += ["", *(f"{number}. {why}" for number, why in enumerate(notes, 1))]
    return "\n".join(lines)


def _note(notes: list[str], why: str) -> str:
    """The mark of a reason, which is added to the notes unless it is there."""
    if not why:
        return ""
    if why not in notes:
        notes.append(why)
    return f" ({notes.index(why) + 1})"


def part(page: str, name: str) -> str:
    """What stands between the marks of a part."""
    return page.partition(f"<!-- {name} -->\n")[2].partition(f"\n<!-- /{name} -->")[0]


def write(page: Path, name: str, text: str) -> None:
    """Put a text where the page has the part of that name; the rest is written by hand."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"\n<!-- /{name} -->")
    assert end, f"{page}: no part {name!r}"
    page.write_text(f"{before}{begin}{text}{end}{after}", encoding="utf-8")

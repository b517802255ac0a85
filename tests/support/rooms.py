"""How the broker's packages are divided, as a table: `python tests/support/rooms.py [DIRECTORY]`.

A room is what lies directly in a package, a folder or a file. An arrow goes from a room to one that
it imports; a floor is one step of the longest way along arrows. DIRECTORY has the package
`latermq_broker`, by default this tree's `broker/`: of an older commit, what `git archive` gives.
"""

import sys
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import grimp

PACKAGE: Final = "latermq_broker"
HERE: Final = Path(__file__).resolve().parents[2] / "broker"
COLUMNS: Final = ("room", "lines", "files", "most in a folder", "rooms", "floors", "arrows")


def arrows(graph: grimp.ImportGraph, package: str) -> dict[str, set[str]]:
    """Give by room of the package those that it imports."""
    home = {
        module: room
        for room in graph.find_children(package)
        for module in {room, *graph.find_descendants(room)}
    }
    found: dict[str, set[str]] = {room: set() for room in home.values()}
    for module, room in home.items():
        for imported in graph.find_modules_directly_imported_by(module):
            found[room] |= {home[imported]} - {room} if imported in home else set()
    return found


def row(graph: grimp.ImportGraph, root: Path, package: str) -> tuple[object, ...]:
    """Count a package; raises graphlib.CycleError: its rooms import each other in a circle."""
    files = list(root.joinpath(*package.split(".")).rglob("*.py"))
    folders = defaultdict[Path, int](int)
    for file in files:
        folders[file.parent] += file.name != "__init__.py"
    ways = arrows(graph, package)
    floors: dict[str, int] = {}
    for room in TopologicalSorter(ways).static_order():
        floors[room] = 1 + max((floors[each] for each in ways[room]), default=0)
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    counts = len(ways), max(floors.values()), sum(map(len, ways.values()))
    return package, lines, len(files), max(folders.values()), *counts


def main(root: Path) -> None:
    sys.path.insert(0, str(root))
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    packages = [each for each in graph.find_children(PACKAGE) if graph.find_children(each)]
    for cells in (COLUMNS, ["---"] * len(COLUMNS)):
        print(f"| {' | '.join(cells)} |")
    for package in (PACKAGE, *sorted(packages)):
        print(f"| {' | '.join(map(str, row(graph, root, package)))} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else HERE)

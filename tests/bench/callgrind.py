"""Reads what valgrind's callgrind counted, and says whose instructions they are: by room.

Format: https://valgrind.org/docs/manual/cl-format.html, with names compressed and one position.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LIBRARY: Final = "latermq_native"
DEFINED: Final = re.compile(r"^CPy(?:Def|Py)_(.+)$")
NAMED: Final = re.compile(r"\((\d+)\)(?: (.*))?")
ALLOCATES: Final = "_PyObject_Malloc"  # all of Python's allocators but the free lists
INTERPRETED: Final = "interpreted Python"
# Functions that would otherwise be those of their callers.
OWN_ROOMS: Final = {
    "_PyEval_EvalFrameDefault": INTERPRETED,
    "gc_collect_main": "garbage collection",
}
OBJECTS: Final = {"uvloop": "uvloop", "google/_upb": "protobuf", "libssl": "TLS"}
REST: Final = "start and rest"
ROUNDS: Final = 60  # of handing the cost of helpers to their callers; converges long before


@dataclass(slots=True)
class Profile:
    """What a process did between two dumps.

    Attributes:
        own: instructions by function, those of what it calls left out.
        calls: (caller, callee) -> [times, instructions in it and below].
        objects: the file that a function is in.
    """

    own: Counter[str] = field(default_factory=Counter)
    calls: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    objects: dict[str, str] = field(default_factory=dict)

    @property
    def instructions(self) -> int:
        return self.own.total()

    @property
    def allocations(self) -> int:
        return sum(times for (_, called), (times, _) in self.calls.items() if called == ALLOCATES)


def read(path: Path) -> Profile:
    """Parse one dump."""
    profile = Profile()
    files: dict[str, str] = {}
    names: dict[str, str] = {}
    function = file = called_file = called = ""
    times = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("ob="):
            file = _name(line[3:], files)
        elif line.startswith("fn="):
            function = _function(_name(line[3:], names))
            profile.objects[function] = file
        elif line.startswith("cob="):
            called_file = _name(line[4:], files)
        elif line.startswith("cfn="):
            called = _function(_name(line[4:], names))
            profile.objects.setdefault(called, called_file or file)
        elif line.startswith("calls="):
            times = int(line[6:].split()[0])
        elif line[:1].isdigit() or line[:1] in "+-*":
            cost = int(line.partition(" ")[2] or 0)
            if times:
                edge = profile.calls.setdefault((function, called), [0, 0])
                edge[0] += times
                edge[1] += cost
                times, called_file = 0, ""
            else:
                profile.own[function] += cost
    return profile


def by_room(profile: Profile, modules: Mapping[str, str]) -> Counter[str]:
    """Give each instruction to a room: of C code that serves everybody, to who called it.

    A helper's instructions go to its callers by what they spent in it, and on to theirs, as gprof
    does; those of a helper that calls rooms back, as what calls any object does, by how often they
    called it: what they spent in it is those rooms'.

    Args:
        modules: see `rooms_of_modules`.
    """
    every = {*profile.own, *(name for edge in profile.calls for name in edge)}
    room = {name: _room(name, profile.objects.get(name, ""), modules) for name in every}
    callers: dict[str, list[tuple[str, int]]] = defaultdict(list)
    calling_back = _calling_back(profile, room)
    for (caller, callee), (times, cost) in profile.calls.items():
        if not room[callee] and caller != callee:
            callers[callee].append((caller, times if callee in calling_back else cost + 1))
    shares: dict[str, Counter[str]] = {name: Counter() for name in every if not room[name]}
    for _ in range(ROUNDS):
        for name, share in shares.items():
            total = sum(cost for _, cost in callers[name])
            fresh: Counter[str] = Counter()
            for caller, cost in callers[name]:
                part = cost / total
                for owner, weight in _owners(caller, room, shares):
                    fresh[owner] += part * weight  # type: ignore[assignment]
            share.clear()
            share.update(fresh)
    rooms: Counter[str] = Counter()
    for name, cost in profile.own.items():
        left = float(cost)
        for owner, weight in _owners(name, room, shares):
            rooms[owner] += round(cost * weight)
            left -= cost * weight
        rooms[REST] += round(left)
    return rooms


def _calling_back(profile: Profile, room: Mapping[str, str]) -> set[str]:
    """Find the helpers that call a room, or a helper that does."""
    found: set[str] = set()
    grown = True
    while grown:
        grown = False
        for caller, callee in profile.calls:
            if not room[caller] and caller not in found and (room[callee] or callee in found):
                found.add(caller)
                grown = True
    return found


def rooms_of_modules(names: Mapping[str, str]) -> dict[str, str]:
    """Each name that mypyc may give a module in C, and its room.

    Args:
        names: dotted names of compiled modules, and their rooms.
    """
    rooms: dict[str, str] = {}
    for dotted, room in names.items():
        parts = dotted.split(".")
        for start in range(len(parts)):  # the shortest that is unlike all others is used
            rooms.setdefault("___".join(parts[start:]), room)
    return rooms


def _owners(
    name: str, room: Mapping[str, str], shares: Mapping[str, Counter[str]]
) -> Iterator[tuple[str, float]]:
    if room[name]:
        yield room[name], 1.0
    else:
        yield from shares[name].items()


def _room(name: str, file: str, modules: Mapping[str, str]) -> str:
    if name in OWN_ROOMS:
        return OWN_ROOMS[name]
    if LIBRARY in file:
        defined = DEFINED.match(name)
        words = defined[1].split("___") if defined else []
        for count in range(len(words), 0, -1):
            if (found := modules.get("___".join(words[:count]))) is not None:
                return found
        return ""
    return next((room for part, room in OBJECTS.items() if part in file), "")


def _name(text: str, known: dict[str, str]) -> str:
    match = NAMED.match(text)
    if match is None:
        return text
    number, name = match.groups()
    if name is not None:
        known[number] = name
    return known[number]


def _function(name: str) -> str:
    return name.partition("'")[0]  # 'N: a level of recursion

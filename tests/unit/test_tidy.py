"""What a machine can check of the house style, beyond ruff, mypy and import-linter.

It reads every tracked file, and every new one that git does not ignore. A file has at most 500
lines, a function 70, a class 20 methods.
"""

import ast
import builtins
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
FILE_LINES_MAX: Final = 500
FUNCTION_LINES_MAX: Final = 70
CLASS_METHODS_MAX: Final = 20
FOLDER_MODULES_MAX: Final = 16
ASSERTS_MIN: Final = 0.2  # a function, where what is asked for must never be half done
ASSERTED: Final = ("broker/latermq_broker/delivery", "broker/latermq_broker/engine/journal")
COMPILED: Final = tuple(
    f"broker/latermq_broker/{room}"
    for room in ("catalog", "delivery", "engine", "schedule", "services", "store", "transport")
)
ROOMED: Final = ("broker", "client", "proto")  # folders of modules with rooms

GENERATED: Final = re.compile(r"_pb2(_grpc)?\.pyi?$")
EXCEPTIONS: Final = {"allow_indirect_imports", "exhaustive_ignores", "ignore_imports"}
TEXT_SUFFIXES: Final = {".md", ".proto", ".py", ".pyi", ".toml", ".txt", ".yaml", ".yml", ""}
CONSTANT: Final = re.compile(r"_?[A-Z][A-Z0-9_]+")
NAMELESS_MODULES: Final = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
NAMELESS_CLASSES: Final = re.compile(r"(Manager|Impl|Utils?|Helpers?)$")
# Spelled in pieces, so that this file does not find itself.
UNFINISHED: Final = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b")
MACHINE_PATH: Final = re.compile(r"(?<![\w.$}~/-])/(?:root|work|tmp|home/\w+)/(?=\w)")
REGISTRY_HOSTS: Final = tuple(
    host + dot + rest
    for host, dot, rest in [
        ("pypi", ".", "org"),
        ("pythonhosted", ".", "org"),
        ("registry.npmjs", ".", "org"),
        ("registry.yarnpkg", ".", "com"),
        ("crates", ".", "io"),
        ("proxy.golang", ".", "org"),
        ("repo1.maven", ".", "org"),
        ("repo.maven.apache", ".", "org"),
        ("deb.debian", ".", "org"),
        ("archive.ubuntu", ".", "com"),
    ]
)
NOUNLESS: Final = {"found", "gone", "one", "passed", "some", "told"}
VERBLESS: Final = {
    "A", "All", "An", "Another", "As", "At", "Both", "By", "Each", "Every", "For", "From", "How",
    "If", "In", "It", "Its", "Milliseconds", "No", "Nobody", "None", "Nothing", "Of", "On",
    "One", "Only", "Since", "That", "The", "Their", "These", "They", "This", "Those", "To",
    "Until", "What", "Whatever", "When", "Where", "Whether", "Which", "Who", "Whose", "With",
    "Without",
}  # fmt: skip
LEANING: Final = ("The same", "As ", "Of ")  # on a neighbour: no class begins so, either
CLOCK_READERS: Final = {"now", "utcnow", "today"}


def tracked(*suffixes: str) -> list[Path]:
    """Files with these suffixes ("" = none) that git tracks or would track, but generated ones."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    paths = [ROOT / name for name in listed.decode().split("\0") if name]
    return sorted(
        path
        for path in paths
        if path.suffix in suffixes and path.is_file() and not GENERATED.search(path.name)
    )


def parsed() -> Iterator[tuple[Path, ast.Module]]:
    for path in tracked(".py"):
        yield path, ast.parse(path.read_text(encoding="utf-8"), str(path))


def at(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def long_files() -> Iterator[str]:
    for path in tracked(".py", ".proto"):
        count = len(path.read_text(encoding="utf-8").splitlines())
        if count > FILE_LINES_MAX:
            yield f"{at(path, count)}: {count} lines, at most {FILE_LINES_MAX}"


def long_functions() -> Iterator[str]:
    for path, tree in parsed():
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                yield f"{at(path, node.lineno)}: {node.name} has {count} lines"


def crowded_classes() -> Iterator[str]:
    for path, tree in parsed():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            methods = {  # a property reads like a field and counts as one
                member.name
                for member in node.body
                if isinstance(member, functions)
                and "property" not in {ast.unparse(mark) for mark in member.decorator_list}
            }
            if len(methods) > CLASS_METHODS_MAX:
                yield f"{at(path, node.lineno)}: {node.name} has {len(methods)} methods"


def nameless_names() -> Iterator[str]:
    for path, tree in parsed():
        if NAMELESS_MODULES & {path.stem.strip("_"), path.parent.name}:
            yield f"{at(path, 1)}: the name says nothing about what it holds"
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and NAMELESS_CLASSES.search(node.name):
                yield f"{at(path, node.lineno)}: class {node.name}: name its one job"


def nounless_names() -> Iterator[str]:
    """A value is called after what it is: that it was found says only how one came by it."""
    for path, tree in parsed():
        if not any(path.is_relative_to(ROOT / root) for root in ROOMED):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load):
                name = node.id if isinstance(node, ast.Name) else node.attr
            elif isinstance(node, ast.arg):
                name = node.arg
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = node.name
            elif isinstance(node, ast.ExceptHandler):
                name = node.name or ""
            else:
                continue
            if name.strip("_") in NOUNLESS:
                yield f"{at(path, node.lineno)}: {name}: say what it is"


def errors_of_two_types() -> Iterator[str]:
    """Compiled, a name in `except … as` has the type of the function's first one, and a TypeError
    for another; if the first is a built-in error or a tuple of them, it takes any."""
    for path, tree in parsed():
        if not path.is_relative_to(ROOT / "broker"):
            continue
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            first: dict[str, str] = {}
            for node in ast.walk(function):
                if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                    kind = ast.unparse(node.type)
                    known = first.setdefault(node.name, kind)
                    if known != kind and known.isidentifier() and not hasattr(builtins, known):
                        yield f"{at(path, node.lineno)}: {node.name} is {known} and {kind}"


def swallowed_errors() -> Iterator[str]:
    broad = {"Exception", "BaseException"}
    for path, tree in parsed():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ExceptHandler):
                continue
            if node.type is None:
                yield f"{at(path, node.lineno)}: bare except"
                continue
            caught = {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)}
            only = node.body[0] if len(node.body) == 1 else None
            silent = isinstance(only, ast.Pass | ast.Continue) or (
                isinstance(only, ast.Expr) and isinstance(only.value, ast.Constant)
            )
            if caught & broad and silent:
                yield f"{at(path, node.lineno)}: catches everything and says nothing"


def clock_reads() -> Iterator[str]:
    """The broker reads the time in clock.py only; everything else is handed `now_ms`."""
    broker = ROOT / "broker" / "latermq_broker"
    for path, tree in parsed():
        if not path.is_relative_to(broker) or path == broker / "clock.py":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import) and any(name.name == "time" for name in node.names):
                yield f"{at(path, node.lineno)}: imports time"
            elif isinstance(node, ast.ImportFrom) and node.module == "time":
                yield f"{at(path, node.lineno)}: imports from time"
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in CLOCK_READERS
                and ast.unparse(node.func.value).split(".")[-1] in {"datetime", "date"}
            ):
                yield f"{at(path, node.lineno)}: reads the wall clock"


def crowded_folders() -> Iterator[str]:
    """A folder that holds more than a reader takes in at once hides rooms that nobody made."""
    for folder, count in sorted(Counter(path.parent for path in modules(*ROOMED)).items()):
        if count > FOLDER_MODULES_MAX:
            yield f"{at(folder, 1)}: {count} modules, at most {FOLDER_MODULES_MAX}"


def excepted_imports() -> Iterator[str]:
    """Who may import whom is said without exceptions: a law of layers names every room."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for contract in tomllib.loads(text)["tool"]["importlinter"]["contracts"]:
        for option in EXCEPTIONS & contract.keys():
            yield f"pyproject.toml: {contract['name']}: {option}"
        if contract["type"] == "layers" and not contract.get("exhaustive"):
            yield f"pyproject.toml: {contract['name']}: not exhaustive"


def namesakes() -> Iterator[str]:
    """Two modules of the broker by one name are told apart by nobody in a traceback or a talk."""
    found = modules("broker/latermq_broker")
    count = Counter(path.stem for path in found)
    for path in found:
        if count[path.stem] > 1:
            yield f"{at(path, 1)}: another module has this name"


def circles() -> Iterator[str]:
    """Files that import each other are read together or not at all.

    Imports that only a type checker follows count as well: a reader follows them, too.
    """
    names: dict[str, Path] = {}
    for path in tracked(".py"):
        if path.is_relative_to(ROOT / "tests"):
            continue
        _, *parts = path.relative_to(ROOT).with_suffix("").parts
        names[".".join(parts).removesuffix(".__init__")] = path
    imported: dict[str, set[str]] = {}
    for name, path in names.items():
        imported[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            if isinstance(node, ast.ImportFrom):
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                imported[name] |= {each if each in names else str(node.module) for each in whole}
            elif isinstance(node, ast.Import):
                imported[name] |= {alias.name for alias in node.names}
        imported[name] &= names.keys() - {name}
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        yield f"{at(names[error.args[1][0]], 1)}: imported in a circle: {error.args[1]}"


def modules(*roots: str) -> list[Path]:
    return [
        path
        for path in tracked(".py")
        if path.name != "__init__.py" and any(path.is_relative_to(ROOT / root) for root in roots)
    ]


def docstrings_about_others() -> Iterator[str]:
    """A docstring that leans on its neighbour or lacks its verb tells a newcomer nothing."""
    for path, tree in parsed():
        if path.parts[len(ROOT.parts)] == "tests":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                if (ast.get_docstring(node) or "").startswith(LEANING):
                    yield f"{at(path, node.lineno)}: {node.name}: leans on another"
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                words = (ast.get_docstring(node) or "").split()
                if words and words[0].strip(",.:;") in VERBLESS:
                    yield f"{at(path, node.lineno)}: {node.name}: begins with no verb"


def few_asserts() -> Iterator[str]:
    for room in ASSERTED:
        nodes = Counter(
            type(node)
            for path in tracked(".py")
            if path.is_relative_to(ROOT / room)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        )
        functions = nodes[ast.FunctionDef] + nodes[ast.AsyncFunctionDef]
        if nodes[ast.Assert] < ASSERTS_MIN * functions:
            yield f"{room}: {nodes[ast.Assert]} asserts in {functions} functions"


def changeable_constants() -> Iterator[str]:
    """Find constants of what is compiled that are not Final: a test's own bound is passed in."""
    for path, tree in parsed():
        if not any(path.is_relative_to(ROOT / room) for room in COMPILED):
            continue
        for node in tree.body:
            if isinstance(node, ast.Assign):
                names = node.targets
            elif isinstance(node, ast.AnnAssign) and "Final" not in ast.unparse(node.annotation):
                names = [node.target]
            else:
                continue
            for name in (name.id for name in names if isinstance(name, ast.Name)):
                if CONSTANT.fullmatch(name):
                    yield f"{at(path, node.lineno)}: {name} is not Final"


def text_lines() -> Iterator[tuple[Path, int, str]]:
    for path in tracked(*TEXT_SUFFIXES):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield path, number, line


def unfinished_work() -> Iterator[str]:
    for path, number, line in text_lines():
        if UNFINISHED.search(line):
            yield f"{at(path, number)}: unfinished work belongs in the tracker: {line.strip()}"


def machine_paths() -> Iterator[str]:
    for path, number, line in text_lines():
        if MACHINE_PATH.search(line):
            yield f"{at(path, number)}: a path of one machine: {line.strip()}"


def registry_hosts() -> Iterator[str]:
    for path, number, line in text_lines():
        if any(host in line for host in REGISTRY_HOSTS):
            yield f"{at(path, number)}: names a package registry: {line.strip()}"


RULES: Final[list[Callable[[], Iterator[str]]]] = [
    long_files,
    crowded_folders,
    excepted_imports,
    namesakes,
    circles,
    docstrings_about_others,
    few_asserts,
    changeable_constants,
    long_functions,
    crowded_classes,
    nameless_names,
    nounless_names,
    errors_of_two_types,
    swallowed_errors,
    clock_reads,
    unfinished_work,
    machine_paths,
    registry_hosts,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_tidy(rule: Callable[[], Iterator[str]]) -> None:
    offences = list(rule())
    assert not offences, "\n" + "\n".join(offences)


def test_every_rule_finds_its_offence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that finds nothing anywhere would pass for ever: give each one something to find."""
    offender = tmp_path / "broker" / "latermq_broker" / "utils.py"
    offender.parent.mkdir(parents=True)
    body = "\n".join(f"    x{i} = {i}" for i in range(FUNCTION_LINES_MAX))
    methods = "\n".join(f"    def m{i}(self): ..." for i in range(CLASS_METHODS_MAX + 1))
    unfinished = "# " + "TO" + "DO: later"
    place = f'PATH = "/{"work"}/data"  # {REGISTRY_HOSTS[0]}'
    padding = "\n" * FILE_LINES_MAX
    function = f'def f():\n    """The same for several."""\n{body}'
    two = "def g():\n try: f()\n except Own as error: raise\n except Exception as error: raise\n"
    offender.write_text(
        f"import time\n{unfinished}\n{place}\n{function}\nclass LogManager:\n{methods}\n"
        f"try:\n    found = f()\nexcept Exception:\n    pass\n{two}{padding}",
        encoding="utf-8",
    )
    crowd = offender.parent / "crowd"
    crowd.mkdir()
    for name in ["utils", *(f"m{number}" for number in range(FOLDER_MODULES_MAX))]:
        (crowd / f"{name}.py").touch()
    for name, other in (("m0", "m1"), ("m1", "m0")):
        (crowd / f"{name}.py").write_text(f"import latermq_broker.crowd.{other}\n")
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.importlinter.contracts]]\nname = "rooms"\ntype = "layers"\nlayers = ["crowd"]\n'
    )
    careless = tmp_path / ASSERTED[0] / "careless.py"
    careless.parent.mkdir()
    careless.write_text("BOUND = 3\n_LIMIT: int = 4\n\n\ndef f(): ...\n")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert [rule.__name__ for rule in RULES if not list(rule())] == []

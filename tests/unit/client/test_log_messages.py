"""What the client logs says why in the message itself: most handlers show nothing of `extra`."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import latermq

PACKAGE: Final = Path(latermq.__file__).parent


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("log."):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node


def test_every_reason_is_in_the_message() -> None:
    found = list(calls())
    assert len(found) > 20
    silent = [
        f"{where}: {ast.unparse(call)}"
        for where, call in found
        if any(word.arg == "extra" for word in call.keywords)
        and len(call.args) - ast.unparse(call.func).endswith(".log") < 2
    ]
    assert not silent, "\n".join(silent)

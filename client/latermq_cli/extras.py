"""Which extra brings a package that is missing: the SDK alone installs none of the command's."""

from collections.abc import Sequence
from typing import Final

EXTRAS: Final = {  # the names that are imported; pyproject.toml has those that are installed
    "broker": ("click", "grpc", "grpc_health", "grpc_reflection", "re2", "uvloop", "xxhash"),
    "console": ("httpx", "jinja2", "markupsafe", "starlette", "uvicorn"),
}
OWN_EXTRA: Final = ("console", "worker")  # commands that need less than a broker does


def hint(missing: str | None, words: Sequence[str]) -> str:
    """Say what to install for a command.

    Args:
        missing: the module that was not found.
        words: the command line, without its first word.
    Returns:
        "": no extra has such a module.
    """
    package = (missing or "").partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if package in modules), "")
    if package == "click":
        extra = next((word for word in words[:1] if word in OWN_EXTRA), extra)
    return extra and f"this needs {package}: pip install 'latermq[{extra}]'"

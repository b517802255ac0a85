"""What this LaterMQ calls itself."""

from importlib.metadata import PackageNotFoundError, version

from latermq_broker import errors


def own_version() -> str:
    """Of the installed package; "" where it runs from a directory that was never installed."""
    try:
        return version("latermq")
    except PackageNotFoundError:
        return ""


def is_compiled() -> bool:
    """Whether the broker is what mypyc made of it (`broker/native_build.py`)."""
    return not str(errors.__file__).endswith(".py")

"""What this LaterMQ calls itself."""

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """Of the installed package; "" where it runs from a directory that was never installed."""
    try:
        return version("latermq")
    except PackageNotFoundError:
        return ""

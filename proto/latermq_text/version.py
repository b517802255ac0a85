"""What this LaterMQ calls itself."""

from importlib.util import find_spec


def own_version() -> str:
    """Return the installed version; "" where it runs from a directory never installed."""
    # Here, not above: it loads a reader of mail, of CSV and of ZIP files, which a start need not.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("latermq")
    except PackageNotFoundError:
        return ""


def is_compiled() -> bool:
    """Tell whether the broker is what mypyc made of it (`broker/native_build.py`)."""
    spec = find_spec("latermq_broker.errors")
    return spec is not None and not str(spec.origin).endswith(".py")


def own_name() -> str:
    """Return the name with the version, as `latermq --version` shows it."""
    version = own_version() or "from a directory that was never installed"
    return f"latermq {version}{', compiled' * is_compiled()}"

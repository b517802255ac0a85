"""What stands where nobody listens yet."""


def do_nothing() -> None:
    """Take a call that tells of something."""


def ignore(*_: object) -> None:
    """Take a call that says what it was."""

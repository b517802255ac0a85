"""The `latermq` command. Its words live beside, a module each, loaded when used."""

import sys

from latermq_cli.extras import hint
from latermq_text.version import own_name


def main() -> None:
    """Run the command named by sys.argv; ends the process with its exit code."""
    if sys.argv[1:] == ["--version"]:  # the SDK alone has a version, too
        print(own_name())
        return
    try:
        import click  # noqa: F401  is the extra installed?
    except ModuleNotFoundError as error:
        print(f"latermq: {hint(error.name, sys.argv[1:])}", file=sys.stderr)
        sys.exit(2)

    from latermq_cli.root import latermq

    latermq()


if __name__ == "__main__":
    main()

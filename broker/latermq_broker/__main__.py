"""The `latermq` command. Its words live in cli/, one module each, loaded when used."""

import sys


def main() -> None:
    """Run the command named by sys.argv; ends the process with its exit code."""
    try:
        import click
    except ModuleNotFoundError:
        print("latermq: this needs more packages: pip install 'latermq[broker]'", file=sys.stderr)
        sys.exit(2)

    from latermq_broker.cli.commands import Lazy, RootGroup

    @click.group(
        cls=RootGroup,
        lazy={
            "serve": Lazy("latermq_broker.cli.serve", "serve", "Run the broker."),
        },
    )
    @click.version_option(package_name="latermq", message="latermq %(version)s")
    def latermq() -> None:
        """The broker for messages that have to come back."""

    latermq()


if __name__ == "__main__":
    main()

"""What the user said about getting in: credentials, TLS. `Connection` opens with it.

The options and variables are the same for every command that speaks to a broker; they are put into
click's context, from which it takes them, so that no command has to hand them on.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import click

from latermq_cli.terminal.failures import RefusedError

ACCESS_KEY_VARIABLE: Final = "LATERMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "LATERMQ_SECRET_KEY"
TLS_VARIABLE: Final = "LATERMQ_TLS"
CA_VARIABLE: Final = "LATERMQ_CA"
SKIP_VERIFY_VARIABLE: Final = "LATERMQ_INSECURE_SKIP_VERIFY"

_META: Final = "latermq.access"
_OFF: Final = frozenset({"", "0", "false", "no", "off"})

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@dataclass(slots=True, kw_only=True)
class Access:
    """What the user said about getting in."""

    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    tls: bool = False
    ca: str = ""
    skip_verify: bool = False

    def checked(self) -> "Access":
        """Raises RefusedError: what was said does not fit together."""
        if bool(self.access_key) != bool(self.secret_key):
            has, lacks = ("access", "secret") if self.access_key else ("secret", "access")
            raise RefusedError(f"the {has} key is given without the {lacks} key")
        if not self.access_key.isascii() or not self.access_key.isprintable():
            raise RefusedError(f"access key {self.access_key!r} is no name of a user")
        return self

    @property
    def encrypted(self) -> bool:
        return self.tls or bool(self.ca) or self.skip_verify


def current_access() -> Access:
    """Return the access of the command that runs, else the environment's. Raises RefusedError."""
    context = click.get_current_context(silent=True)
    if context is not None and _META in context.meta:
        access: Access = context.meta[_META]
        return access.checked()
    return access_of_environment()


def access_of_environment() -> Access:
    """Raises RefusedError."""
    said = os.environ.get
    return Access(
        access_key=said(ACCESS_KEY_VARIABLE, ""),
        secret_key=said(SECRET_KEY_VARIABLE, ""),
        tls=said(TLS_VARIABLE, "").lower() not in _OFF,
        ca=said(CA_VARIABLE, ""),
        skip_verify=said(SKIP_VERIFY_VARIABLE, "").lower() not in _OFF,
    ).checked()


def access_options(command: Decorated) -> Decorated:
    """Add `--access-key` and the others; the command does not see them, its help has no room."""

    def kept(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        access = context.meta.setdefault(_META, Access())
        name = parameter.name or ""
        setattr(access, name, value or type(getattr(access, name))())

    options = (
        click.option(
            "--access-key", envvar=ACCESS_KEY_VARIABLE, show_envvar=True, metavar="KEY",
            callback=kept, expose_value=False, hidden=True,
            help="Who asks, where the broker wants to know.",
        ),
        click.option(
            "--secret-key", envvar=SECRET_KEY_VARIABLE, show_envvar=True, metavar="SECRET",
            callback=kept, expose_value=False, hidden=True,
            help="The user's secret; others on this machine can see options, not variables.",
        ),
        click.option(
            "--tls", is_flag=True, envvar=TLS_VARIABLE, show_envvar=True,
            callback=kept, expose_value=False, hidden=True, help="Talk TLS.",
        ),
        click.option(
            "--ca", envvar=CA_VARIABLE, show_envvar=True, metavar="FILE",
            callback=kept, expose_value=False, hidden=True,
            help="TLS; trust who is signed by this, instead of the system's roots.",
        ),
        click.option(
            "--insecure-skip-verify", "skip_verify", is_flag=True, envvar=SKIP_VERIFY_VARIABLE,
            callback=kept, expose_value=False, hidden=True, help="TLS; trust whoever answers.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command

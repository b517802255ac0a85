"""`latermq console`: serve the pages until told to end."""

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import click

from latermq import Tls
from latermq_text.log_writer import BesideHandler, LogWriter

VARIABLES = ("LATERMQ_ACCESS_KEY", "LATERMQ_SECRET_KEY")


@click.command(
    epilog="\b\nExamples:\n  latermq console\n"
    "  latermq console --listen 127.0.0.1:8088 --endpoint broker:8081 --tls\n"
    "  latermq console --listen 0.0.0.0:8088 --certificate cert.pem --private-key key.pem"
)
@click.option(
    "--listen",
    default="127.0.0.1:8088",
    show_default=True,
    metavar="HOST:PORT",
    help="Where browsers find it; port 0: a free one.",
)
@click.option(
    "--endpoint",
    envvar="LATERMQ_ENDPOINT",
    default="127.0.0.1:8081",
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT",
    help="The broker.",
)
@click.option("--tls", is_flag=True, envvar="LATERMQ_TLS", help="Talk TLS with the broker.")
@click.option(
    "--ca",
    envvar="LATERMQ_CA",
    metavar="FILE",
    default=None,
    help="TLS with the broker; trust who is signed by this.",
)
@click.option(
    "--insecure-skip-verify",
    "skip_verify",
    is_flag=True,
    envvar="LATERMQ_INSECURE_SKIP_VERIFY",
    help="TLS with the broker; trust whoever answers.",
)
@click.option(
    "--certificate",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Serve https, with this certificate (PEM).",
)
@click.option(
    "--private-key",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="The certificate's key (PEM).",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A further name that browsers know it by, behind a proxy. Repeatable.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="A reverse proxy, or a network of them, whose X-Forwarded-Proto and X-Forwarded-For are "
    "believed. Repeatable.",
)
@click.option(
    "--exposed",
    is_flag=True,
    help="Listen beyond this machine without users or https all the same.",
)
@click.option(
    "--prometheus",
    envvar="LATERMQ_PROMETHEUS",
    show_envvar=True,
    default="",
    metavar="URL",
    help="Draw figures as far back as a Prometheus has them that scrapes the broker.",
)
@click.option("--json", "as_json", is_flag=True, help="Print where it listens as JSON.")
def console(**options: Any) -> None:
    """Serve a console for people: what waits, what died and why, and how to bring it back.

    It signs nobody in by itself: where the broker has users, people sign in as one of them and
    may do what that user may. LATERMQ_ACCESS_KEY and LATERMQ_SECRET_KEY name a user as whom it
    samples figures from its start on; nobody else acts with that user's rights.
    """
    from latermq_console.server import serve
    from latermq_console.settings import (
        LOOPBACK_NAMES,
        ListenError,
        Settings,
        is_loopback,
        overheard,
        parse_listen,
        parse_prometheus,
        parse_proxy,
    )

    access_key, secret = (os.environ.pop(name, "") for name in VARIABLES)
    if bool(options["certificate"]) != bool(options["private_key"]):
        raise click.UsageError("--certificate and --private-key go together")
    if bool(access_key) != bool(secret):
        raise click.UsageError(f"{' and '.join(VARIABLES)} go together")
    try:
        host, port = parse_listen(options["listen"])
        hosts = None
        if is_loopback(host):
            hosts = LOOPBACK_NAMES | {*options["hosts"]}
        elif options["hosts"]:
            hosts = frozenset(options["hosts"])
        settings = Settings(
            endpoint=options["endpoint"],
            tls=_tls(options),
            hosts=hosts,
            secure=bool(options["certificate"]),
            proxies=tuple(map(parse_proxy, options["proxies"])),
            prometheus=parse_prometheus(options["prometheus"]),
            access_key=access_key,
            secret=secret,
        )
        files = (options["certificate"], options["private_key"])
        _log_beside()
        for warning in overheard(settings, host):
            logging.getLogger("latermq.console").warning(warning)
        say = _say_json if options["as_json"] else _say
        asyncio.run(serve(settings, host, port, files, say, exposed=options["exposed"]))
    except (ListenError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"cannot serve: {error.strerror or error}") from None
    except KeyboardInterrupt:
        sys.exit(130)


def _log_beside() -> None:
    """Write warnings to stderr beside the loop, as logging would by itself in the loop."""
    try:
        writer = LogWriter(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # there is none
        return
    logging.getLogger().addHandler(BesideHandler(writer))


def _say(url: str) -> None:
    print(f"latermq console on {url}", flush=True)


def _say_json(url: str) -> None:
    print(json.dumps({"url": url}), flush=True)


def _tls(options: dict[str, Any]) -> bool | Tls:
    if options["skip_verify"]:
        return Tls(verify=False)
    if options["ca"]:
        return Tls(ca=Path(options["ca"]).expanduser())
    return bool(options["tls"])

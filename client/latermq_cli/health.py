"""`latermq health`, and `python -m latermq_cli.health` for container health checks.

Both ask the standard gRPC health service and nothing else: exit code 0 when the broker serves. The
command asks for the broker's parts, too; a container's check may cause a restart, which mends none.
"""

import os
import sys
from typing import Final

import click
from grpc_health.v1 import health_pb2

from latermq import admin
from latermq.admin import Method
from latermq.errors import LaterMQError
from latermq_cli.connection.connection import opened
from latermq_cli.connection.credentials import (
    Access,
    access_of_environment,
    current_access,
)
from latermq_cli.connection.options import DEFAULT_ENDPOINT, broker_options, example
from latermq_cli.terminal.console import print_json
from latermq_cli.terminal.failures import CommandError
from latermq_h2.grpc_code import GrpcCode

CHECK: Final = Method("/grpc.health.v1.Health/Check", health_pb2.HealthCheckResponse)
TIMEOUT_S: Final = 2.0
PARTS: Final = ("checkpoints", "directory", "disk", "clock", "schedules")
FAILING: Final = frozenset({"checkpoints", "directory"})  # what is stored is at stake


def check(endpoint: str, access: Access) -> None:
    """Ask once, for TIMEOUT_S.

    Raises:
        CommandError: it does not serve; why.
    """
    with opened(admin.connect, endpoint, access) as broker:
        try:
            reply = broker.ask(CHECK, health_pb2.HealthCheckRequest(), timeout_s=TIMEOUT_S)
        except LaterMQError as error:
            status = GrpcCode(error.grpc_code).name
            raise CommandError(f"{endpoint} does not answer: {status}") from error
    if reply.status != health_pb2.HealthCheckResponse.SERVING:
        raise CommandError(f"{endpoint} answers, but does not serve")


def out_of_order(endpoint: str, access: Access) -> list[str]:
    """List the parts of a broker that are out of order; a version that has none of them: none."""
    parts: list[str] = []
    with opened(admin.connect, endpoint, access) as broker:
        for part in PARTS:
            request = health_pb2.HealthCheckRequest(service=f"latermq.{part}")
            try:
                reply = broker.ask(CHECK, request, timeout_s=TIMEOUT_S)
            except LaterMQError:
                continue
            if reply.status == health_pb2.HealthCheckResponse.NOT_SERVING:
                parts.append(part)
    return parts


@click.command(epilog=example("latermq health", "latermq health --endpoint broker-1:8081"))
@broker_options
def health(endpoint: str, as_json: bool) -> None:
    """Ask whether the broker serves calls: exit code 0 when it does, 1 when not.

    1 too when it serves, and its checkpoints fail or its data directory is out of reach. A full
    disk, a clock that is behind and schedules that are late are named, with exit code 0. Why is
    in the broker's log, and in `/readyz` where metrics.listen is set.
    """
    check(endpoint, current_access())
    parts = out_of_order(endpoint, current_access())
    words = f"{endpoint} serves" + (f"; not in order: {', '.join(parts)}" if parts else "")
    if as_json:
        print_json({"endpoint": endpoint, "serving": True, "not_in_order": parts})
    if not FAILING.isdisjoint(parts):
        raise CommandError(f"{words}; see /readyz or the broker's log")
    if not as_json:
        click.echo(words)


def main() -> int:
    """Return 0: the broker at LATERMQ_ENDPOINT serves; 1: not, and one line on stderr says why."""
    try:
        check(os.environ.get("LATERMQ_ENDPOINT", DEFAULT_ENDPOINT), access_of_environment())
    except CommandError as error:
        print(f"latermq: {error.format_message()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

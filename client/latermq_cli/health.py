"""`python -m latermq_cli.health`: exit code 0 when the broker at LATERMQ_ENDPOINT serves.

For container health checks: asks the standard gRPC health service and nothing else.
"""

import os
import sys
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from latermq_cli.connection.door import door_of_environment
from latermq_cli.connection.door_channels import open_channel
from latermq_cli.connection.options import DEFAULT_ENDPOINT
from latermq_cli.terminal.failures import CommandError

TIMEOUT_S: Final = 2.0


def main() -> int:
    """0: serving. 1: not, with one line on stderr that says why."""
    endpoint = os.environ.get("LATERMQ_ENDPOINT", DEFAULT_ENDPOINT)
    try:
        opened = open_channel(door_of_environment(), endpoint, [])
    except CommandError as error:
        print(f"latermq: {error.format_message()}", file=sys.stderr)
        return 1
    with opened as channel:
        try:
            reply = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S
            )
        except grpc.RpcError as error:
            print(f"latermq: {endpoint} does not answer: {error.code().name}", file=sys.stderr)
            return 1
    if reply.status != health_pb2.HealthCheckResponse.SERVING:
        print(f"latermq: {endpoint} answers, but does not serve", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m latermq_cli.health`: exit code 0 when the broker at LATERMQ_ENDPOINT serves.

For container health checks: asks the standard gRPC health service and nothing else.
"""

import os
import sys
from typing import Final

from grpc_health.v1 import health_pb2

from latermq import admin
from latermq.admin import Method
from latermq.errors import LaterMQError
from latermq_cli.connection.connection import opened
from latermq_cli.connection.credentials import access_of_environment
from latermq_cli.connection.options import DEFAULT_ENDPOINT
from latermq_cli.terminal.failures import CommandError
from latermq_h2.grpc_code import GrpcCode

CHECK: Final = Method("/grpc.health.v1.Health/Check", health_pb2.HealthCheckResponse)
TIMEOUT_S: Final = 2.0


def main() -> int:
    """0: serving. 1: not, with one line on stderr that says why."""
    endpoint = os.environ.get("LATERMQ_ENDPOINT", DEFAULT_ENDPOINT)
    try:
        broker = opened(admin.connect, endpoint, access_of_environment())
    except CommandError as error:
        print(f"latermq: {error.format_message()}", file=sys.stderr)
        return 1
    with broker:
        try:
            reply = broker.ask(CHECK, health_pb2.HealthCheckRequest(), timeout_s=TIMEOUT_S)
        except LaterMQError as error:
            status = GrpcCode(error.grpc_code).name
            print(f"latermq: {endpoint} does not answer: {status}", file=sys.stderr)
            return 1
    if reply.status != health_pb2.HealthCheckResponse.SERVING:
        print(f"latermq: {endpoint} answers, but does not serve", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

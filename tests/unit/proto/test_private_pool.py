"""Our stubs beside the official client's, which bring a second copy of `apache.rocketmq.v2`.

Each case is a process of its own: what a pool has seen, it does not forget.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

PROTO: Final = Path(__file__).resolve().parents[3] / "proto"
OURS: Final = (
    "from latermq_proto.apache.rocketmq.v2 import definition_pb2 as ours, service_pb2_grpc"
)
THEIRS: Final = "import rocketmq; from rocketmq.grpc_protocol import definition_pb2 as theirs"
EXCHANGE: Final = """
def fill(stubs):
    message = stubs.Message(topic=stubs.Resource(name="orders"), body=b"one")
    message.user_properties["colour"] = "red"
    system = message.system_properties
    system.message_id, system.tag, system.message_type = "id", "eu", stubs.FIFO
    system.keys.extend(["a", "b"])
    system.born_timestamp.FromMilliseconds(1_700_000_000_123)
    system.invisible_duration.FromMilliseconds(1_500)
    return message

bytes_ours, bytes_theirs = fill(ours).SerializeToString(), fill(theirs).SerializeToString()
assert bytes_ours == bytes_theirs
assert ours.Message.FromString(bytes_theirs) == fill(ours)
assert theirs.Message.FromString(bytes_ours) == fill(theirs)
assert ours.Message is not theirs.Message
assert fill(ours).system_properties.born_timestamp.ToMilliseconds() == 1_700_000_000_123
"""
DEFAULT_POOL_IS_CLEAN: Final = """
from google.protobuf import descriptor_pool
for name in ("apache.rocketmq.v2.Message", "latermq.v1.Failure", "google.protobuf.Timestamp"):
    try:
        descriptor_pool.Default().FindMessageTypeByName(name)
    except KeyError:
        continue
    raise AssertionError(name)
"""


def run(*source: str) -> None:
    """Run the lines in a new interpreter, its warnings turned into errors."""
    command = [sys.executable, "-W", "error", "-c", "\n".join(source)]
    done = subprocess.run(command, cwd=PROTO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("order", [(OURS, THEIRS), (THEIRS, OURS)], ids=["ours", "theirs"])
def test_both_clients_stubs_in_one_process(order: tuple[str, str]) -> None:
    run(*order, EXCHANGE)


def test_nothing_of_ours_is_in_the_default_pool() -> None:
    services = "admin_pb2_grpc, service_pb2_grpc"
    latermq = "dead_letter_pb2_grpc, failure_pb2, group_pb2, pending_pb2, queue_pb2, topic_pb2"
    run(
        f"from latermq_proto.apache.rocketmq.v2 import {services}",
        f"from latermq_proto.latermq.v1 import {latermq}",
        DEFAULT_POOL_IS_CLEAN,
    )

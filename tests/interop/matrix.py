"""Which official clients there are, what each must be able to do, and which tests show it."""

from dataclasses import dataclass, field
from typing import Final

TLS: Final = "-tls"  # behind a client's name: the same cases, encrypted
TLS_ROW: Final = "all of this over TLS"
NOT_IN_CLIENT: Final = "not in client"

CAPABILITIES: Final = {
    "normal messages: unicode, 1 MiB, refusals": (
        "test_send_message_and_ack_it",
        "test_send_message_with_a_body_of_one_mib",
        "test_send_message_refused_keeps_the_code",
    ),
    "delayed messages": ("test_send_message_delayed",),
    "recall of a delayed message": ("test_recall_message",),
    "SimpleConsumer: long poll, lease, redelivery": (
        "test_receive_message_wakes_when_one_is_sent",
        "test_receive_message_again_after_the_lease",
    ),
    "change invisible duration": (
        "test_change_invisible_duration",
        "test_change_invisible_duration_brings_it_back",
    ),
    "PushConsumer": ("test_push_consumer_success",),
    "PushConsumer: retry by ladder, dead letter": (
        "test_push_consumer_failure_until_the_dead_letter",
        "test_push_consumer_failure_in_a_group_without_a_policy",
    ),
    "tag filters": ("test_receive_message_filters_by_tag",),
    "SQL92 filters": ("test_receive_message_filters_by_sql",),
    "FIFO with SimpleConsumer": (
        "test_fifo_simple_consumer_receives_each_message_group_in_order",
        "test_fifo_blocks_the_message_group_alone",
    ),
    "FIFO with PushConsumer, dead letter": (
        "test_fifo_push_consumer_keeps_the_order_while_it_fails",
        "test_fifo_push_consumer_forwards_what_never_gets_through",
    ),
    "transactions: commit, rollback": ("test_end_transaction_commit_and_rollback",),
    "transactions: checks, broker killed": (
        "test_recover_orphaned_transaction",
        "test_recover_orphaned_transaction_by_another_producer",
        "test_half_messages_outlive_the_broker",
    ),
    "broker killed: SimpleConsumer goes on": ("test_receive_message_goes_on_after_a_restart",),
    "broker killed: PushConsumer goes on": ("test_telemetry_and_receive_go_on_after_a_restart",),
}

NO_PUSH: Final = "it has no push consumer"


@dataclass(frozen=True, slots=True)
class Client:
    """One official client. `lacks` says of a capability why the client does not have it."""

    title: str
    package: str
    lacks: dict[str, str] = field(default_factory=dict)
    skipped: str = ""  # why no test runs it
    own_faults: dict[str, str] = field(default_factory=dict)  # by test: it must fail, and why


CLIENTS: Final = {
    "python": Client("Python", "rocketmq-python-client (PyPI)"),
    "node": Client("Node.js", "rocketmq-client-nodejs (npm)"),
    "go": Client("Go", "github.com/apache/rocketmq-clients/golang/v5"),
    "java": Client("Java", "org.apache.rocketmq:rocketmq-client-java (Maven)"),
    "rust": Client(
        "Rust",
        "rocketmq (crate)",
        lacks={
            "recall of a delayed message": "it has no recall",
            "change invisible duration": "it has no call for it",
            "PushConsumer": NO_PUSH,
            "PushConsumer: retry by ladder, dead letter": NO_PUSH,
            "FIFO with PushConsumer, dead letter": NO_PUSH,
            "broker killed: PushConsumer goes on": NO_PUSH,
            TLS_ROW: "its TLS is switched on, but never set up",
        },
    ),
    "csharp": Client("C#", "RocketMQ.Client (NuGet)", skipped="no .NET SDK and no NuGet here"),
    "cpp": Client("C++", "rocketmq-clients/cpp", skipped="no package: built from source only"),
}
IN_CI: Final = ("python", "node")
RUN: Final = tuple(name for name, client in CLIENTS.items() if not client.skipped)
WITH_TLS: Final = tuple(name for name in RUN if TLS_ROW not in CLIENTS[name].lacks)
EVERY_RUN: Final = (*RUN, *(name + TLS for name in WITH_TLS))


def capability_of(test: str) -> str:
    [capability] = [name for name, tests in CAPABILITIES.items() if test in tests]
    return capability


def client_of(run: str) -> Client:
    """`run`: a client's name, with TLS or without."""
    return CLIENTS[run.removesuffix(TLS)]

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
    "priority messages": (
        "test_priority_higher_ones_come_first",
        "test_priority_with_a_push_consumer",
        "test_priority_missing_is_refused",
    ),
    "priority messages: 0, the lowest": ("test_priority_zero_is_the_lowest",),
    "priority messages: kept by a retry": ("test_priority_is_kept_by_a_retry",),
    "lite topics: LitePushConsumer": (
        "test_lite_push_consumer_gets_them_in_order_with_retries",
        "test_lite_push_consumer_reads_what_it_subscribes_to",
        "test_lite_push_consumer_of_another_parent_is_refused",
    ),
    "lite topics: LiteSimpleConsumer": (
        "test_lite_simple_consumer_reads_the_lite_topics_it_chose",
        "test_lite_topic_waits_for_what_is_not_acknowledged",
    ),
    "batch send": ("test_send_message_batch",),
    "transactions: commit, rollback": ("test_end_transaction_commit_and_rollback",),
    "transactions: checks, broker killed": (
        "test_recover_orphaned_transaction",
        "test_recover_orphaned_transaction_by_another_producer",
        "test_half_messages_outlive_the_broker",
    ),
    "access key and secret: right, wrong, without the right": (
        "test_credentials_send_and_receive_what_was_granted",
        "test_credentials_without_the_right",
        "test_credentials_with_a_wrong_secret",
    ),
    "access key and secret: PushConsumer": ("test_credentials_of_a_push_consumer",),
    "Admin asks for its threads' stacks": ("test_question_for_the_stacks",),
    "Admin has it verify a message": ("test_question_to_verify_a_message",),
    "broker killed: SimpleConsumer goes on": ("test_receive_message_goes_on_after_a_restart",),
    "broker killed: PushConsumer goes on": ("test_telemetry_and_receive_go_on_after_a_restart",),
}

NO_PUSH: Final = "it has no push consumer"
NO_LITE: Final = "it does not know lite topics"
NO_BATCH: Final = "its producer sends one message with a call"
NO_LITE_SIMPLE: Final = "it has a LitePushConsumer only"
NO_QUESTIONS: Final = "it takes the question and never answers"
NO_UNKNOWN: Final = "its checker cannot say that it does not know yet"
BATCH: Final = "batch send"
LITE_SIMPLE: Final = "lite topics: LiteSimpleConsumer"
STACKS: Final = "Admin asks for its threads' stacks"
VERIFY: Final = "Admin has it verify a message"


@dataclass(frozen=True, slots=True)
class Client:
    """One official client. `lacks` says of a capability why the client does not have it."""

    title: str
    package: str
    lacks: dict[str, str] = field(default_factory=dict)
    skipped: str = ""  # why no test runs it
    own_faults: dict[str, str] = field(default_factory=dict)  # by test: it must fail, and why


CLIENTS: Final = {
    "python": Client(
        "Python",
        "rocketmq-python-client (PyPI)",
        lacks={BATCH: NO_BATCH, STACKS: NO_QUESTIONS, VERIFY: NO_QUESTIONS},
    ),
    "node": Client(
        "Node.js",
        "rocketmq-client-nodejs (npm)",
        lacks={
            LITE_SIMPLE: NO_LITE_SIMPLE,
            BATCH: NO_BATCH,
            VERIFY: "it sends the question back, with NOT_IMPLEMENTED",
        },
        own_faults={
            "test_priority_zero_is_the_lowest": "a priority of 0 is none to it, which it refuses",
        },
    ),
    "go": Client(
        "Go",
        "github.com/apache/rocketmq-clients/golang/v5",
        lacks={
            LITE_SIMPLE: NO_LITE_SIMPLE,
            BATCH: NO_BATCH,
            VERIFY: "it answers NOT_IMPLEMENTED",
        },
    ),
    "java": Client(
        "Java",
        "org.apache.rocketmq:rocketmq-client-java (Maven)",
        lacks={LITE_SIMPLE: NO_LITE_SIMPLE, BATCH: NO_BATCH},
    ),
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
            "priority messages": "its messages have no priority",
            "priority messages: 0, the lowest": "its messages have no priority",
            "priority messages: kept by a retry": "its messages have no priority",
            "lite topics: LitePushConsumer": NO_LITE,
            LITE_SIMPLE: NO_LITE,
            "access key and secret: PushConsumer": NO_PUSH,
            STACKS: NO_QUESTIONS,
            VERIFY: NO_QUESTIONS,
            TLS_ROW: "its TLS is switched on, but never set up",
        },
    ),
    "csharp": Client("C#", "RocketMQ.Client (NuGet)", skipped="no .NET SDK and no NuGet here"),
    "cpp": Client(
        "C++",
        "rocketmq-clients/cpp (sources)",
        lacks={
            "lite topics: LitePushConsumer": NO_LITE,
            LITE_SIMPLE: NO_LITE,
            BATCH: NO_BATCH,
        },
        own_faults={
            "test_change_invisible_duration": (
                "its message keeps the handle that the change replaced, and acknowledges with it"
            ),
            "test_recover_orphaned_transaction": NO_UNKNOWN,
            "test_half_messages_outlive_the_broker": NO_UNKNOWN,
            "test_credentials_with_a_wrong_secret": "its start never ends when it is refused",
        },
    ),
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

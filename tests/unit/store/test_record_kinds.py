"""Each record type: these bytes, this value, this text, for ever."""

from typing import Any, Final, NamedTuple

import pytest

from latermq_broker.catalog.schedules import decode_schedule, encode_schedule
from latermq_broker.store.records.catalog_records import (
    CONFIG_PUT,
    CONFIG_TOPIC,
    OFFSET_REWIND,
    ConfigPayload,
    OffsetPayload,
    ResetPayload,
    WantedPayload,
)
from latermq_broker.store.records.change_records import PUT, REMOVE, ChangePayload
from latermq_broker.store.records.dedup_records import (
    DedupValue,
    dedup_key,
    encode_dedup_value,
)
from latermq_broker.store.records.kind import Fields, Names
from latermq_broker.store.records.kinds import KINDS
from latermq_broker.store.records.lease_records import (
    AHEAD_PASS,
    EXTEND_AGAIN,
    EXTEND_BOUNDS,
    EXTEND_GONE,
    EXTEND_KEEP_HANDLE,
    LEASE_AUTO_RENEW,
    ORDERED_TAKE,
    AttemptPayload,
    ExtendPayload,
    LeaseFreshPayload,
    LeaseOrderedPayload,
    LeaseRetryPayload,
    OrderedRow,
    Outcome,
)
from latermq_broker.store.records.letter_records import (
    DEAD_EXHAUSTED,
    DEAD_ORDERED,
    DEAD_PARKS,
    DeadChangePayload,
    DeadHead,
    DeadPayload,
    DeadState,
    RedrivePayload,
)
from latermq_broker.store.records.lite_records import LITE_CURSOR, LitePayload
from latermq_broker.store.records.message_records import (
    MESSAGE_ORDERED,
    QUEUE_UNSET,
    REF_DUE,
    MessageHead,
    MessagePayload,
    RefPayload,
    TimerPayload,
)
from latermq_broker.store.records.own_records import LifePayload, LostPayload
from latermq_broker.store.records.record import FLAG_CLEAN, HEADER_BYTES, Record, RecordType
from latermq_broker.store.records.retention_records import (
    DROP_TRIM,
    MOVE_MESSAGE,
    DropPayload,
    MovedEntry,
    MovePayload,
    TrimmedQueue,
)
from latermq_broker.store.records.schedule_records import (
    SCHEDULE_DECLARED,
    SCHEDULE_PUT,
    SCHEDULE_REMOVE,
    SCHEDULE_TICK,
    SCHEDULE_WITHDRAWN,
    SchedulePayload,
    declared_body,
)
from latermq_broker.store.records.transaction_records import (
    TXN_CHECKED,
    HalfSenderPayload,
    TxnPayload,
)

REST: Final = b'"\x05hello'  # v2.Message: the body
SYS: Final = b"\x0a\x03new\x12\x02k1\x1a\x03m-1"  # v2.SystemProperties: tag, key, message id
HISTORY: Final = b'{"signature":"s"}'
TOPIC: Final = b'{"name":"orders","type":1,"queue_count":4,"epoch":"e"}'
SCHEDULE: Final = (
    b'{"changed_ms":5,"created_ms":5,"cron":"0 6 * * 1-5","every_ms":0,"fault":"","last_ms":0,'
    b'"message":"Kgdyb3V0aW5l","missed":2,"name":"report","next_ms":9000,"paused":false,"ticks":0,'
    b'"topic":"orders","zone":"Europe/Berlin"}'
)
LIMIT: Final = b'{"scope":1,"name":"c","in_flight":10}'


class Golden(NamedTuple):
    value: Any
    hex: str  # of the payload
    tail: bytes  # what follows
    text: Fields
    decoded: Any = None  # where that is not the value


DEAD_HEAD: Final = DeadHead(
    id=7, origin=0x40, queue_offset=0, origin_offset=3, tag_hash=10, id_hash=11, group_id=5,
    dlq_topic_id=6, origin_topic_id=1, origin_queue_id=2, attempt_count=16, max_attempts=16,
    redrive_count=1, reason=DEAD_EXHAUSTED, flags=DEAD_PARKS | DEAD_ORDERED, redriven_ms=9,
    history_length=17, rest_length=7, sys_length=14,
)  # fmt: skip

MESSAGES: Final = {
    RecordType.MESSAGE: Golden(
        MessagePayload(1, 2, MESSAGE_ORDERED, 3, 0, 10, 11, 0, (12,), REST, SYS, order_key=13),
        "01000000 0200 02 01 0300000000000000 0000000000000000 0a00000000000000 0b00000000000000"
        "07000000 0e000000 00 000000 0c00000000000000",
        REST + SYS + b"\x0d\0\0\0\0\0\0\0",
        {
            "topic": "orders", "queue": 2, "offset": 3, "message_id": "m-1", "tag": "new",
            "keys": ["k1"], "body_bytes": 5,
        },
        MessageHead(1, 2, MESSAGE_ORDERED, 1, 3, 0, 10, 11, 7, 14, 0, (12,)),
    ),
    RecordType.REF: Golden(
        RefPayload(0x40, 10, 3, 1000, 99, 1, 2, REF_DUE),
        "4000000000000000 0a00000000000000 0300000000000000 e803000000000000 63000000 01000000"
        "0200 01 00",
        b"",
        {"topic": "orders", "queue": 2, "offset": 3, "reason": "due", "message_at": 64},
    ),
    RecordType.TIMER: Golden(
        TimerPayload(0x40, 1000, 2000, 1, 99),
        "4000000000000000 e803000000000000 d007000000000000 01000000 63000000",
        b"",
        {"message_at": 64, "was_due_at_ms": 1000, "due_at_ms": 2000},
    ),
    RecordType.HALF: Golden(
        MessagePayload(1, QUEUE_UNSET, 0, -1, 1000, 10, 11, 0, (), REST, SYS),
        "01000000 ffff 00 00 ffffffffffffffff e803000000000000 0a00000000000000 0b00000000000000"
        "07000000 0e000000 00 000000",
        REST + SYS,
        {
            "topic": "orders", "message_id": "m-1", "check_at_ms": 1000, "tag": "new",
            "keys": ["k1"], "body_bytes": 5,
        },
        MessageHead(1, QUEUE_UNSET, 0, 0, -1, 1000, 10, 11, 7, 14, 0, ()),
    ),
    RecordType.TXN: Golden(
        TxnPayload(0x40, 2000, 99, 3, TXN_CHECKED, 0),
        "4000000000000000 d007000000000000 63000000 0300 01 00",
        b"",
        {"message_at": 64, "what": "a producer was asked", "checks": 3, "check_at_ms": 2000},
    ),
    RecordType.HALF_SENDER: Golden(
        HalfSenderPayload((0x40, 0x80), "shop"),
        "02000000 00000000 4000000000000000 8000000000000000",
        b"shop",
        {"messages_at": [64, 128], "user": "shop"},
    ),
    RecordType.CLOCK: Golden(-2, "feffffffffffffff", b"", {"wall_ahead_ms": -2}),
    RecordType.LIFE: Golden(
        LifePayload(1 << 40, 0x9E3779B1),
        "0000000000010000 b179379e",
        b"",
        {"first_delivery": 1 << 40, "stride": 0x9E3779B1},
    ),
    RecordType.DEAD: Golden(
        DeadPayload(DEAD_HEAD, HISTORY, REST, SYS, order_key=13),
        "0700000000000000 4000000000000000 0000000000000000 0300000000000000 0a00000000000000"
        "0b00000000000000 05000000 06000000 01000000 0200 1000 1000 0100 01 03 0000"
        "0900000000000000 11000000 07000000 0e000000",
        HISTORY + REST + SYS + b"\x0d\0\0\0\0\0\0\0",
        {
            "group": "billing", "offset": 0, "reason": "attempts_exhausted", "delivery": 7,
            "attempts": 16, "origin_topic": "orders", "origin_queue": 2, "origin_offset": 3,
            "message_id": "m-1", "signature": "s", "redrives": 1, "body_bytes": 5, "parks": True,
        },
        DeadPayload(DEAD_HEAD, sys=SYS, order_key=13),
    ),
    RecordType.DEAD_CHANGE: Golden(
        DeadChangePayload(6, DeadState.DROPPED, (0, 4)),
        "06000000 03 000000 0000000000000000 0400000000000000",
        b"",
        {"topic": "#6", "state": "dropped", "offsets": [0, 4]},
    ),
    RecordType.REDRIVE: Golden(
        RedrivePayload(8, 0x400, 4, 10, 3, 5, 6, 1, 222, 2, 13),
        "0800000000000000 0004000000000000 0400000000000000 0a00000000000000 0300000000000000"
        "05000000 06000000 01000000 de000000 0200 0000 0d00000000000000",
        b"",
        {"group": "billing", "letter": 4, "topic": "orders", "delivery": 8, "letter_at": 1024},
    ),
}  # fmt: skip

DELIVERIES: Final = {
    RecordType.LEASE_FRESH: Golden(
        LeaseFreshPayload(7, 3, 0x40, 5, 1, 30_000, 2, 3, LEASE_AUTO_RENEW, (0, 2)),
        "0700000000000000 0300000000000000 4000000000000000 05000000 01000000 30750000 0200 0200"
        "03000000 01 000000 00000000 02000000",
        b"",
        {
            "group": "billing", "topic": "orders", "queue": 2, "offsets": [3, 5],
            "deliveries": [7, 8], "invisible_ms": 30_000, "auto_renew": True, "client": "worker@1",
        },
    ),
    RecordType.LEASE_RETRY: Golden(
        LeaseRetryPayload(0x40, 30_000, LEASE_AUTO_RENEW, (7, 8)),
        "4000000000000000 30750000 01 000000 0700000000000000 0800000000000000",
        b"",
        {
            "deliveries": [7, 8], "invisible_ms": 30_000, "auto_renew": True, "client": "worker@1",
        },
    ),
    RecordType.LEASE_ORDERED: Golden(
        LeaseOrderedPayload(7, 0x40, 5, 1, 30_000, 2, 0, 4, (OrderedRow(13, 3, 2, ORDERED_TAKE),)),
        "0700000000000000 4000000000000000 05000000 01000000 30750000 0200 00 00 0400000000000000"
        "0d00000000000000 0300000000000000 0200 01 0000000000",
        b"",
        {
            "group": "billing", "topic": "orders", "queue": 2, "next_offset": 4, "leased": ["2:3"],
            "deliveries": [7], "invisible_ms": 30_000, "auto_renew": False, "client": "worker@1",
        },
    ),
    RecordType.LEASE_AHEAD: Golden(
        LeaseOrderedPayload(
            7, 0x40, 5, 1, 30_000, 2, 0, 1,
            (OrderedRow(0, 3, 2, ORDERED_TAKE), OrderedRow(2, 4, 2, AHEAD_PASS)),
        ),
        "0700000000000000 4000000000000000 05000000 01000000 30750000 0200 00 00 0100000000000000"
        "0000000000000000 0300000000000000 0200 01 0000000000"
        "0200000000000000 0400000000000000 0200 03 0000000000",
        b"",
        {
            "group": "billing", "topic": "orders", "queue": 2, "leased": ["2:3"],
            "deliveries": [7], "invisible_ms": 30_000, "auto_renew": False, "client": "worker@1",
            "passed_over": ["4-5"],
        },
    ),
    RecordType.ACK: Golden(
        (7, 8), "0700000000000000 0800000000000000", b"", {"deliveries": [7, 8]}
    ),
    RecordType.EXTEND: Golden(
        ExtendPayload(7, 30_000, EXTEND_KEEP_HANDLE),
        "0700000000000000 30750000 01 000000",
        b"",
        {"delivery": 7, "invisible_ms": 30_000, "handle_stays": True, "renewal": False,
         "renewed_no_more": False},
    ),
    RecordType.ATTEMPT: Golden(
        AttemptPayload(0x80, 7, 0x40, 250, 2, Outcome.NACK, 1000, ("E", "no", "h", "")),
        "8000000000000000 0700000000000000 4000000000000000 fa000000 0200 01 03 e8030000"
        "0100 0200 0100 0000",
        b"Enoh",
        {
            "delivery": 7, "attempt": 2, "outcome": "nack", "ran_ms": 250, "backoff_ms": 1000,
            "client": "worker@1", "previous_at": 128, "failure_class": "E", "failure_text": "no",
        },
    ),
    RecordType.CLIENT: Golden("worker@2", "", b"worker@2", {"client": "worker@2"}),
    RecordType.LITE: Golden(
        LitePayload(LITE_CURSOR, 5, 1, ((14, 3),)),
        "01 000000 05000000 01000000 00000000 0e00000000000000 0300000000000000",
        b"",
        {
            "topic": "orders", "group": "billing", "what": "goes on elsewhere",
            "from": ["000000000000000e:3"],
        },
    ),
}  # fmt: skip

OTHERS: Final = {
    RecordType.CONFIG: Golden(
        ConfigPayload(CONFIG_TOPIC, CONFIG_PUT, 1, TOPIC),
        "01 01 0000 01000000",
        TOPIC,
        {
            "what": "topic", "name": "orders", "topic_type": "normal", "queues": 4,
            "topic_epoch": "e",
        },
    ),
    RecordType.OFFSET: Golden(
        OffsetPayload(5, 1, 2, 9, OFFSET_REWIND),
        "05000000 01000000 0200 02 0000000000 0900000000000000",
        b"",
        {"group": "billing", "topic": "orders", "queue": 2, "next_offset": 9, "act": "rewind"},
    ),
    RecordType.WANTED: Golden(
        WantedPayload(5, 1, ("sql:a = 5", "tags:x||y")),
        "05000000 01000000",
        b'["sql:a = 5","tags:x||y"]',
        {"group": "billing", "topic": "orders", "filters": ["sql:a = 5", "tags:x||y"]},
    ),
    RecordType.RESET: Golden(
        ResetPayload(5, 1, (9, 10)),
        "05000000 01000000 0900000000000000 0a00000000000000",
        b"",
        {"group": "billing", "topic": "orders", "next_offsets": [9, 10]},
    ),
    RecordType.ACCESS: Golden(
        ChangePayload(REMOVE, b"shop"), "02 00000000000000", b"shop", {"deleted_user": "shop"}
    ),
    RecordType.LIMIT: Golden(
        ChangePayload(PUT, LIMIT),
        "01 00000000000000",
        LIMIT,
        {"scope": "client", "name": "c", "in_flight": 10},
    ),
    RecordType.DEDUP: Golden(
        [
            (
                dedup_key(1, "order-17"),
                encode_dedup_value(DedupValue(0x40, 3, 0, 301_000, b"m-1")),
            ),
            (dedup_key(1, "é"), encode_dedup_value(DedupValue(0x98, -1, 2000, 301_000, b"m-2"))),
            (
                dedup_key(1, "7"),
                encode_dedup_value(DedupValue(0x98, 4, 0, 301_000, b"m-3", "shop")),
            ),
        ],
        "01000000 08 6f726465722d3137 4000000000000000 0300000000000000 0000000000000000"
        "c897040000000000 0300 6d2d31 01000000 02 c3a9 9800000000000000 ffffffffffffffff"
        "d007000000000000 c897040000000000 0300 6d2d32 01000000 01 37 9800000000000000"
        "0400000000000000 0000000000000000 c897040000000000 0380 6d2d33 04 73686f70",
        b"",
        {
            "topic": "orders", "dedup_ids": ["order-17", "é", "7"],
            "messages_at": [64, 152, 152], "until_ms": 301_000,
        },
    ),
    RecordType.SCHEDULE: Golden(
        SchedulePayload(SCHEDULE_TICK, b"report", 9000, 12000),
        "03 00000000000000 2823000000000000 e02e000000000000",
        b"report",
        {"schedule": "report", "tick_ms": 9000, "next_ms": 12000},
    ),
    RecordType.MOVE: Golden(
        MovePayload(
            MOVE_MESSAGE, RecordType.MESSAGE, 99, 0x40, 0x30, 1000, 500, (7,),
            (MovedEntry(1, 2, 0, 3, 10, 500),), b"inner",
        ),
        "01 01 0000 01000000 01000000 63000000 4000000000000000 3000000000000000 e803000000000000"
        "f401000000000000 0700000000000000 01000000 0200 0000 0300000000000000 0a00000000000000"
        "f401000000000000",
        b"inner",
        {
            "what": "message", "message_at": 64, "due_at_ms": 1000, "deliveries": [7],
            "topic": "orders", "queue": 2, "offsets": [3],
        },
    ),
    RecordType.DROP: Golden(
        DropPayload(DROP_TRIM, 0, (TrimmedQueue(1, 2, 3),)),
        "01 000000 0000 0000 0000000000000000 01000000 0200 0000 0300000000000000",
        b"",
        {"what": "expired", "queues": 1, "topic": "orders", "queue": 2, "first_offset": 3},
    ),
    RecordType.LOST: Golden(
        LostPayload(56, 1000),
        "e803000000000000 0000000000000000",
        b"",
        {"lost_bytes": 56, "given_up_at_ms": 1000},
    ),
    RecordType.MARK: Golden(None, "", b"", {"clean": True}),
    RecordType.BLANK: Golden(None, "", b"", {}),
}  # fmt: skip

GOLDEN: Final = MESSAGES | DELIVERIES | OTHERS


def test_each_type_has_its_kind_and_its_golden_bytes() -> None:
    assert set(KINDS) == set(GOLDEN) == set(RecordType)


def test_an_extension_of_the_holder_has_golden_bytes_of_its_own() -> None:
    kind = KINDS[RecordType.EXTEND]
    extend = ExtendPayload(7, 30_000, EXTEND_KEEP_HANDLE | EXTEND_BOUNDS)
    payload = bytes.fromhex("0700000000000000 30750000 05 000000")
    assert b"".join(kind.encode(extend)) == payload
    assert kind.decode(memoryview(payload)) == extend
    record = Record(0x200, RecordType.EXTEND, FLAG_CLEAN, 5, 1, payload, HEADER_BYTES + 16)
    assert kind.text(record, Names())["renewed_no_more"] is True


def test_an_attempt_that_its_holder_ended_has_golden_bytes_of_its_own() -> None:
    kind = KINDS[RecordType.ATTEMPT]
    attempt = AttemptPayload(0x80, 7, 0x40, 250, 2, Outcome.SUSPENDED, 1000, None, 0x9E3779B1)
    payload = bytes.fromhex(
        "8000000000000000 0700000000000000 4000000000000000 fa000000 0200 05 05 e8030000 b179379e"
    )
    assert b"".join(kind.encode(attempt)) == payload
    assert kind.decode(memoryview(payload)) == attempt


@pytest.mark.parametrize("number", RecordType, ids=lambda number: number.name)
def test_golden(number: RecordType) -> None:
    golden, kind = GOLDEN[number], KINDS[number]
    payload = bytes.fromhex(golden.hex) + golden.tail
    assert b"".join(kind.encode(golden.value)).hex(" ") == payload.hex(" ")
    decoded = golden.value if golden.decoded is None else golden.decoded
    assert kind.decode(memoryview(payload)) == decoded
    names = Names()
    names.topics[1], names.groups[5], names.clients[0x40] = "orders", "billing", "worker@1"
    record = Record(0x200, number, FLAG_CLEAN, 5, 1, payload, HEADER_BYTES + len(payload))
    text = kind.text(record, names)
    assert list(text.items()) == list(golden.text.items())


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (
            SchedulePayload(SCHEDULE_PUT, SCHEDULE),
            {
                "schedule": "report", "topic": "orders", "every_ms": 0, "cron": "0 6 * * 1-5",
                "zone": "Europe/Berlin", "missed": "one", "paused": False, "next_ms": 9000,
            },
        ),
        (SchedulePayload(SCHEDULE_REMOVE, b"report"), {"removed_schedule": "report"}),
        (
            SchedulePayload(SCHEDULE_TICK, b"report", 0, 9),
            {"schedule": "report", "passed_over": True, "next_ms": 9},
        ),
        (
            SchedulePayload(SCHEDULE_DECLARED, b'{"app":"billing","names":["a","b"]}', 9),
            {"app": "billing", "schedules": "a, b", "since_ms": 9},
        ),
        (
            SchedulePayload(SCHEDULE_WITHDRAWN, declared_body("billing", ["a"])),
            {"app": "billing", "schedules": "a", "withdrawn": True},
        ),
    ],
)  # fmt: skip
def test_what_else_a_schedule_record_says(payload: SchedulePayload, text: Fields) -> None:
    kind = KINDS[RecordType.SCHEDULE]
    written = b"".join(kind.encode(payload))
    assert kind.decode(written) == payload
    record = Record(0x200, RecordType.SCHEDULE, 0, 5, 1, written, HEADER_BYTES + len(written))
    assert kind.text(record, Names()) == text
    if payload.operation == SCHEDULE_PUT:
        assert encode_schedule(decode_schedule(SCHEDULE)) == SCHEDULE


def test_the_bytes_of_a_declaration() -> None:
    declared = SchedulePayload(SCHEDULE_DECLARED, declared_body("billing", ["sweep"]), 9000)
    written = b"".join(KINDS[RecordType.SCHEDULE].encode(declared))
    assert written == bytes.fromhex("040000000000000028230000000000000000000000000000") + (
        b'{"app":"billing","names":["sweep"]}'
    )


def test_texts_teach_names() -> None:
    names = Names()
    for number in (RecordType.CONFIG, RecordType.CLIENT):
        payload = bytes.fromhex(GOLDEN[number].hex) + GOLDEN[number].tail
        record = Record(0x200, number, 0, 5, 1, payload, HEADER_BYTES + len(payload))
        KINDS[number].text(record, names)
    assert (names.topic(1), names.client(0x200)) == ("orders", "worker@2")
    assert (names.topic(2), names.group(5), names.client(0x40)) == ("#2", "#5", "@64")


@pytest.mark.parametrize(
    ("flags", "byte", "shown"),
    [
        (EXTEND_BOUNDS, "05", {"renewed_no_more": True}),
        (EXTEND_AGAIN, "09", {"again": True}),
        (EXTEND_GONE, "11", {"renewed_no_more": True, "client_gone": True}),
    ],
)
def test_an_extend_tells_what_became_of_the_reply(flags: int, byte: str, shown: Fields) -> None:
    payload = ExtendPayload(7, 30_000, EXTEND_KEEP_HANDLE | flags)
    kind = KINDS[RecordType.EXTEND]
    data = b"".join(map(bytes, kind.encode(payload)))
    assert data.hex() == "0700000000000000" + "30750000" + byte + "000000"
    assert kind.decode(data) == payload
    record = Record(0x200, RecordType.EXTEND, 0, 5, 1, data, HEADER_BYTES + len(data))
    assert shown.items() <= kind.text(record, Names()).items()


def test_an_attempt_tells_that_its_client_was_gone() -> None:
    payload = AttemptPayload(0x80, 7, 0x40, 250, 2, Outcome.CLIENT_GONE, 0, None)
    kind = KINDS[RecordType.ATTEMPT]
    data = b"".join(map(bytes, kind.encode(payload)))
    expected = "8000000000000000 0700000000000000 4000000000000000 fa000000 0200 07 00"
    assert data == bytes.fromhex(expected)
    assert kind.decode(data) == payload
    record = Record(0x200, RecordType.ATTEMPT, 0, 5, 1, data, HEADER_BYTES + len(data))
    assert kind.text(record, Names())["outcome"] == "client_gone"

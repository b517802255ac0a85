"""RocketMQ's signature, as each official client writes it (protocol.md 1.2)."""

import pytest

from latermq_broker.errors import UnauthorizedError
from latermq_broker.services.auth.signature import claim_of, is_signed_with, span_ms

DATE = "20240131T235959Z"
SECRET = "12345678"
# hmac.new(b"12345678", b"20240131T235959Z", "sha1"), computed once with openssl's command line
HEX = "6e43f30b7a7e279b21dff1429e652702eec163ec"
HOUR_MS = 3_600_000


def header(credential: str = "ak", signature: str = HEX) -> str:
    return (
        f"MQv2-HMAC-SHA1 Credential={credential}, SignedHeaders=x-mq-date-time, "
        f"Signature={signature}"
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(header(), id="Python"),
        pytest.param(header(signature=HEX.upper()), id="Java, Node.js, C#"),
        pytest.param(header("ak//Rocketmq"), id="Go"),
        pytest.param(header("ak/cn-north-1/RocketMQ", HEX.upper()), id="C++"),
        pytest.param(header().replace(", ", ","), id="no blanks"),
    ],
)
def test_every_clients_form(text: str) -> None:
    claim = claim_of(text, DATE)
    assert claim.access_key == "ak"
    assert is_signed_with(claim, SECRET)
    assert not is_signed_with(claim, "12345679")
    assert not is_signed_with(claim_of(text, "20240131T235958Z"), SECRET)


@pytest.mark.parametrize(
    ("authorization", "date", "reason"),
    [
        (None, None, "not signed"),
        ("", DATE, "not signed"),
        ("Bearer abc", DATE, "'Bearer'"),
        (header(""), DATE, "no access key"),  # Python without credentials
        (header("/x"), DATE, "no access key"),
        (header(signature=""), DATE, "40 hex digits"),
        (header(signature="zz" * 20), DATE, "40 hex digits"),
        (header(signature=HEX[:-2]), DATE, "40 hex digits"),
        (header(signature="ä" * 40), DATE, "40 hex digits"),
        (header(), None, "x-mq-date-time"),
        (header(), "", "x-mq-date-time"),
        (header(), "1" * 1_025, "x-mq-date-time"),
        (header("a" * 1_024), DATE, "longer than 1024"),
        ("MQv2-HMAC-SHA1", DATE, "no access key"),
    ],
)
def test_what_is_no_signature(authorization: str | None, date: str | None, reason: str) -> None:
    with pytest.raises(UnauthorizedError, match=reason) as refused:
        claim_of(authorization, date)
    assert refused.value.code == 40100


def test_a_date_in_any_zone() -> None:
    """Most clients write their local time, and a Z behind it."""
    at_ms = 1_706_745_599_000
    assert span_ms(DATE) == (at_ms - 14 * HOUR_MS, at_ms + 12 * HOUR_MS)


@pytest.mark.parametrize(
    "date",
    [
        "2024-02-01T07:59:59.123456789+08:00",
        "2024-01-31T23:59:59Z",
        "2024-01-31T18:59:59.5-05:00",
    ],
)
def test_rusts_date_says_its_zone(date: str) -> None:
    assert span_ms(date) == (1_706_745_599_000, 1_706_745_599_999)


@pytest.mark.parametrize(
    "date", ["yesterday", "20240132T000000Z", "2024-02-30T00:00:00Z", "20240131T235959", "x" * 999]
)
def test_no_date(date: str) -> None:
    with pytest.raises(UnauthorizedError, match="is no date"):
        span_ms(date)

"""Endpoints as users write them, as the protocol has them, as gRPC wants them."""

import pytest

from latermq._values.endpoints import AddressScheme, Endpoints


@pytest.mark.parametrize(
    ("text", "scheme", "host", "port", "target"),
    [
        ("127.0.0.1:8081", AddressScheme.IPV4, "127.0.0.1", 8081, "ipv4:127.0.0.1:8081"),
        ("[::1]:8081", AddressScheme.IPV6, "::1", 8081, "ipv6:[::1]:8081"),
        ("broker:1", AddressScheme.DOMAIN_NAME, "broker", 1, "dns:///broker:1"),
        (
            " mq.example.com:65535 ",
            AddressScheme.DOMAIN_NAME,
            "mq.example.com",
            65535,
            "dns:///mq.example.com:65535",
        ),
    ],
)
def test_parse(text: str, scheme: AddressScheme, host: str, port: int, target: str) -> None:
    endpoints = Endpoints.parse(text)
    assert endpoints == Endpoints(scheme, ((host, port),))
    assert endpoints.target() == target
    assert str(endpoints) == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "broker",
        "broker:",
        ":8081",
        "broker:0",
        "broker:65536",
        "broker:http",
        "::1:8081",
        "[broker]:8081",
        "[127.0.0.1]:8081",
        "broker:1,broker:2",
        "broker:1;",
        "broker:\u0663",
        "http://broker:8081",
        "broker:8081/path",
        "a b:8081",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an endpoint|a port is|is no IPv6 address"):
        Endpoints.parse(text)


@pytest.mark.parametrize(
    ("text", "scheme", "target"),
    [
        ("10.0.0.1:1;10.0.0.2:2", AddressScheme.IPV4, "ipv4:10.0.0.1:1,10.0.0.2:2"),
        ("[::1]:1;[::2]:1", AddressScheme.IPV6, "ipv6:[::1]:1,[::2]:1"),
        ("a:1;b:1", AddressScheme.DOMAIN_NAME, "dns:///a:1"),
    ],
)
def test_several(text: str, scheme: AddressScheme, target: str) -> None:
    endpoints = Endpoints.parse(text)
    assert (endpoints.scheme, len(endpoints.addresses)) == (scheme, 2)
    assert (str(endpoints), endpoints.target()) == (text, target)


@pytest.mark.parametrize("text", ["10.0.0.1:1;b:1", "[::1]:1;10.0.0.1:1"])
def test_of_one_kind(text: str) -> None:
    with pytest.raises(ValueError, match="are of one kind"):
        Endpoints.parse(text)


def test_compared_as_given() -> None:
    assert Endpoints.parse("localhost:8081") != Endpoints.parse("127.0.0.1:8081")
    assert Endpoints.parse("broker:8081") == Endpoints.parse("broker:8081")

"""Which addresses of a host are bound, and how."""

import errno
import socket
from contextlib import ExitStack

import pytest

from latermq_text.listening import addresses_to_bind, bound_sockets

FOUR, SIX = int(socket.AF_INET), int(socket.AF_INET6)
STREAM = int(socket.SOCK_STREAM)


def test_an_address_that_is_found_twice_is_bound_once() -> None:
    found = [(FOUR, STREAM, 6, "", (host, 0)) for host in ("127.0.0.1", "127.0.0.2", "127.0.0.1")]
    rows = addresses_to_bind(found, 8081)
    assert [address[:2] for _, address in rows] == [("127.0.0.1", 8081), ("127.0.0.2", 8081)]


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
def test_the_wildcard_of_both_stands_alone() -> None:
    found = [(FOUR, STREAM, 6, "", ("0.0.0.0", 0)), (SIX, STREAM, 6, "", ("::", 0, 0, 0))]
    assert addresses_to_bind(found, 1) == [(SIX, ("::", 1, 0, 0))]
    assert addresses_to_bind(found[:1], 1) == [(FOUR, ("0.0.0.0", 1, 0, 0))]


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
@pytest.mark.parametrize("host", ["::", "*"])
def test_it_takes_both_families(host: str) -> None:
    with ExitStack() as stack:
        (listener,) = (stack.enter_context(each) for each in bound_sockets(host, 0))
        listener.listen()
        port = listener.getsockname()[1]
        for reached in ("127.0.0.1", "::1"):
            socket.create_connection((reached, port)).close()


def test_a_port_that_is_taken_is_refused_and_nothing_is_left_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(OSError, match="in use") as refused:
            bound_sockets("127.0.0.1", taken.getsockname()[1])
        assert refused.value.errno == errno.EADDRINUSE


def test_a_host_that_is_unknown_is_refused() -> None:
    with pytest.raises(OSError, match=r"not known|resolution|No address"):
        bound_sockets("no-such-host.invalid", 0)

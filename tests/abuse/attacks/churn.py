"""Connections that come, say much without a signature, and go, again and again: number 15."""

import asyncio
import socket
import ssl
import time
from typing import Final

from abuse.attacks.requests import SEND
from abuse.peer import Target, insecure
from abuse.siege import BALANCER, Attack, Case
from latermq_h2.hpack.encoder import encode
from latermq_h2.http2 import frames

HEADERS: Final = 100  # of each connection
PER_S: Final = 400  # connections: many more would take the neighbour's core, whoever is attacked
HOLD_S: Final = 4.0
ANSWER_S_MAX: Final = 5.0


def said() -> bytes:
    """The preface, SETTINGS, and HEADERS of calls whose requests never come."""
    block = encode([
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", SEND.encode()),
        (b":authority", b"abuse"), (b"te", b"trailers"), (b"content-type", b"application/grpc"),
        (b"x-mq-client-id", b"abuse@1@0@x"), (b"x-mq-language", b"PYTHON"),
    ])  # fmt: skip
    heads = (
        frames.frame(frames.HEADERS, frames.END_HEADERS, 1 + 2 * number, block)
        for number in range(HEADERS)
    )
    return frames.PREFACE + frames.settings(()) + b"".join(heads)


def churn(
    *, addresses: int = 1, tls: bool = False, proxied: bool = False, waits: bool = False
) -> Attack:
    """One thread that connects, says it and closes; `waits`: once the broker has answered."""
    words = said()

    def once(target: Target, number: int) -> bool:
        source = BALANCER if proxied else f"127.0.4.{1 + number % addresses}"
        head = f"PROXY TCP4 10.1.1.{1 + number % addresses} {target.host} 4711 {target.port}\r\n"
        try:
            with socket.create_connection(
                (target.host, target.port), timeout=ANSWER_S_MAX, source_address=(source, 0)
            ) as plain:
                if proxied:
                    plain.sendall(head.encode())
                peer = insecure().wrap_socket(plain) if tls else plain
                with peer:
                    peer.sendall(words)
                    if waits:
                        peer.recv(1)
        except (OSError, ssl.SSLError):
            return False
        return True

    def many(target: Target) -> str:
        begun_s = time.monotonic()
        served, count = 0, 0
        while time.monotonic() < begun_s + HOLD_S:
            time.sleep(max(0.0, begun_s + count / PER_S - time.monotonic()))
            served += once(target, count)
            count += 1
        return f"{served} of {count} connected"

    async def attack(target: Target) -> str:
        return await asyncio.to_thread(many, target)

    return attack


def case(name: str, what: str, attack: Attack, *, always: bool = True) -> Case:
    return Case(
        number=15, name=name, what=what, attack=attack, always=always,
        seconds_max=HOLD_S + 2 * ANSWER_S_MAX,
    )  # fmt: skip


CASES: Final = (
    case("churn", "100 HEADERS on each of 400 connections a second", churn()),
    case("churn-many-addresses", "the same from 200 addresses", churn(addresses=200)),
    case(
        "churn-waits", "the same, each closed when it is answered", churn(addresses=200, waits=True)
    ),
    case("churn-tls", "the same over TLS", churn(tls=True)),
    case(
        "churn-tls-many-addresses",
        "over TLS from 200",
        churn(addresses=200, tls=True),
        always=False,
    ),
    case("churn-proxy", "from 200 behind a balancer", churn(addresses=200, proxied=True)),
    case("churn-proxy-one", "from one behind a balancer", churn(proxied=True), always=False),
)

"""A broker that asks who calls: the SDK, the command line, TLS, and what is told to nobody."""

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import latermq
from abuse.peer import MESSAGING, Caller, Peer, Target, framed
from latermq.errors import ForbiddenError, UnauthorizedError, UnavailableError
from latermq_broker.services.auth.brake import FAILURES_PER_S, HELD_S
from support.broker_process import BrokerProcess
from support.machine import patient

ROOT, ROOT_SECRET = "root", "the-secret-of-root"
SEND = f"{MESSAGING}/SendMessage"
CONFIG = (
    "[auth]\nenabled = true\n[tls]\nenabled = true\n[server]\npolling_ms_min = 100\n"
    "[log]\nlevel = 'debug'\n"
)
NAMED = f'root_access_key = "{ROOT}"\nroot_secret_key = "{ROOT_SECRET}"\n'
BURSTS_MAX = 20


def command(
    broker: BrokerProcess, *words: str, by: Mapping[str, str], code: int = 0
) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key[:8] != "LATERMQ_"}
    environment |= {"LATERMQ_ENDPOINT": broker.endpoint, **by}
    done = subprocess.run(
        [sys.executable, "-m", "latermq_broker", *words],
        env=environment, capture_output=True, text=True, timeout=patient(60), check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


def credentials(text: str) -> dict[str, str]:
    """Lines of NAME=VALUE, as `user create` and the file of the first admin have them."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("security") / "data"
    with BrokerProcess(data_dir, config=CONFIG) as broker:
        yield broker.start()


@pytest.fixture(scope="module")
def root(broker: BrokerProcess) -> dict[str, str]:
    return credentials((broker.data_dir / "root-credentials").read_text())


@pytest.fixture(scope="module")
def shop(broker: BrokerProcess, root: dict[str, str]) -> dict[str, str]:
    made = credentials(command(broker, "user", "create", "shop", by=root).stdout)
    command(
        broker, "acl", "grant", "shop", "--topic", "orders", "--group", "billing", "--right", "sub",
        by=root,
    )  # fmt: skip
    command(broker, "acl", "grant", "shop", "--topic", "orders*", "--right", "pub", by=root)
    return made


def trusted(broker: BrokerProcess) -> str:
    return str(broker.data_dir / "tls" / "certificate.pem")


def test_the_first_admin_is_for_the_brokers_user_only(
    broker: BrokerProcess, root: dict[str, str]
) -> None:
    path = broker.data_dir / "root-credentials"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for found in (broker.data_dir, *broker.data_dir.rglob("*")):
        if "tls" not in found.parts and found.is_dir():
            assert stat.S_IMODE(found.stat().st_mode) == 0o700, found
        elif found.suffix in (".seg", ".ckpt", ".prep"):
            assert stat.S_IMODE(found.stat().st_mode) == 0o600, found
    assert "root" in command(broker, "user", "list", by=root).stdout


@pytest.mark.parametrize("transport", ["lean", "grpcio"])
async def test_the_sdk_signs_in_clear_text_and_over_tls(
    broker: BrokerProcess, shop: dict[str, str], transport: str
) -> None:
    key, secret = shop.values()
    for tls in (False, latermq.Tls(ca=trusted(broker))):
        async with latermq.connect(
            broker.endpoint, access_key=key, secret=secret, tls=tls, transport=transport
        ) as mq:
            await mq.send("orders", b"one")
            consumer = mq.simple_consumer("orders", group="billing")
            (delivery,) = await consumer.receive()
            assert delivery.body == b"one"
            await delivery.ack()
            with pytest.raises(ForbiddenError, match="user shop needs the right pub or sub"):
                await mq.send("others", b"two")
            with pytest.raises(ForbiddenError, match="group shipping"):
                await mq.simple_consumer("orders", group="shipping").receive()


async def test_a_worker_works_without_the_right_to_look_at_what_it_declares(
    broker: BrokerProcess, shop: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "latermq.worker")
    key, secret = shop.values()
    app = latermq.App(broker.endpoint, access_key=key, secret=secret, tls=False)
    app.topic("others", queues=2)  # not granted
    end = asyncio.Event()

    @app.listener("orders", group="billing")
    async def bill(order: bytes) -> None:
        if order == b"worked":
            end.set()

    serving = asyncio.create_task(app.serve(end))
    await bill.send(b"worked")
    assert await serving
    assert "topics and groups are not compared with the code's" in caplog.text
    with pytest.raises(ForbiddenError):
        await app.declare()
    await app.close()


async def test_the_sdk_is_refused(broker: BrokerProcess) -> None:
    async with latermq.connect(broker.endpoint, tls=False) as mq:
        with pytest.raises(UnauthorizedError, match="not signed"):
            await mq.send("orders", b"one")
    wrong = latermq.connect(broker.endpoint, access_key=ROOT, secret="not-this-secret", tls=False)
    async with wrong as mq:
        with pytest.raises(UnauthorizedError, match="with the secret"):
            await mq.send("orders", b"one")


async def test_whom_the_sdk_trusts(broker: BrokerProcess, shop: dict[str, str]) -> None:
    key, secret = shop.values()
    anybody = latermq.Tls(verify=False)
    async with latermq.connect(broker.endpoint, access_key=key, secret=secret, tls=anybody) as mq:
        await mq.send("orders-2", b"one")
    async with latermq.connect(broker.endpoint, access_key=key, secret=secret, tls=True) as mq:
        with pytest.raises(UnavailableError):
            await mq.send("orders-2", b"one")


async def test_a_client_certificate_names_a_user(broker: BrokerProcess, tmp_path: Path) -> None:
    """The other broker's own certificate serves as one, and as the CA that signed it."""
    own = broker.data_dir / "tls"
    config = (
        f"[auth]\nenabled = true\ncertificate_users = true\n{NAMED}[tls]\nenabled = true\n"
        f'client_certificates = "optional"\nclient_ca = "{own / "certificate.pem"}"\n'
    )
    name = socket.gethostname()[:64]
    with BrokerProcess(tmp_path / "data", config=config) as asking:
        asking.start()
        root = {"LATERMQ_ACCESS_KEY": ROOT, "LATERMQ_SECRET_KEY": ROOT_SECRET}
        shows = latermq.Tls(
            ca=trusted(asking), certificate=own / "certificate.pem", key=own / "key.pem"
        )
        async with latermq.connect(asking.endpoint, tls=shows) as mq:
            with pytest.raises(UnauthorizedError, match="who is no user"):
                await mq.send("orders", b"one")
            await asyncio.to_thread(command, asking, "user", "create", name, "--admin", by=root)
            await mq.send("orders", b"one")
        async with latermq.connect(asking.endpoint, tls=latermq.Tls(ca=trusted(asking))) as mq:
            with pytest.raises(UnauthorizedError, match="not signed"):
                await mq.send("orders", b"one")


@pytest.mark.parametrize("transport", ["lean", "grpcio"])
async def test_who_guesses_waits_though_the_request_comes_after_its_head(
    transport: str, tmp_path: Path
) -> None:
    config = f'[auth]\nenabled = true\n{NAMED}[server]\ntransport = "{transport}"\n'
    with BrokerProcess(tmp_path / "data", config=config) as guarded:
        host, port = guarded.start().endpoint.split(":")
        guesser = Caller(ROOT, "not-this-secret")
        loop = asyncio.get_running_loop()
        async with await Peer.open(Target(host, int(port), guesser)) as peer:
            for _ in range(BURSTS_MAX):  # a machine may be too slow for so many in a second
                began_s = loop.time()
                calls = [peer.call(SEND) for _ in range(2 * FAILURES_PER_S)]
                await peer.flush()
                async with latermq.connect(
                    guarded.endpoint, access_key=ROOT, secret=ROOT_SECRET
                ) as mq:  # of the same key and address
                    await asyncio.wait_for(mq.send("orders", b"right"), patient(HELD_S))
                assert (await peer.answered(calls[0], patient(10))).said == "UNAUTHORIZED"
                assert await peer.send(calls[-1], framed(b"")[:3])  # of a call that is kept back
                said = {(await peer.answered(call, patient(10))).said for call in calls}
                assert said == {"UNAUTHORIZED"}
                if b"too many calls" in peer.answers[calls[-1]].message:
                    break
            assert b"too many calls" in peer.answers[calls[-1]].message
            assert loop.time() - began_s >= HELD_S + 0.5  # 20 of them, 20 a second


def test_threads_too(broker: BrokerProcess, shop: dict[str, str]) -> None:
    key, secret = shop.values()
    tls = latermq.Tls(ca=trusted(broker))
    with latermq.sync.connect(broker.endpoint, access_key=key, secret=secret, tls=tls) as mq:
        mq.send("orders-3", b"one")


def test_commands_over_tls(broker: BrokerProcess, shop: dict[str, str]) -> None:
    send = ("send", "orders", "hello")
    command(broker, *send, "--ca", trusted(broker), by=shop)
    command(broker, *send, by={**shop, "LATERMQ_CA": trusted(broker)})
    command(broker, *send, "--insecure-skip-verify", by=shop)
    told = command(broker, *send, "--tls", by=shop, code=1)
    assert "a certificate that is not trusted" in told.stderr
    told = command(broker, *send, by={}, code=2)
    assert told.stderr.count("\n") == 1
    assert "not signed" in told.stderr
    words = ("bench", "send", "--topic", "orders", "--duration", "200ms", "--ca", trusted(broker))
    assert "messages/s" in command(broker, *words, by=shop).stdout


async def test_a_user_who_is_disabled_is_out_at_once(
    broker: BrokerProcess, root: dict[str, str]
) -> None:
    made = credentials(command(broker, "user", "create", "guest", "--admin", by=root).stdout)
    key, secret = made.values()
    async with latermq.connect(broker.endpoint, access_key=key, secret=secret, tls=False) as mq:
        await mq.send("guests", b"one")
        await asyncio.to_thread(command, broker, "user", "disable", "guest", by=root)
        with pytest.raises(UnauthorizedError, match="guest is disabled"):
            await mq.send("guests", b"two")
        await asyncio.to_thread(command, broker, "user", "enable", "guest", by=root)
        await mq.send("guests", b"three")


def test_users_stay_after_a_kill_and_a_stop_and_no_secret_is_told(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", config=CONFIG + "[metrics]\n") as broker:
        broker.start()
        root = credentials((broker.data_dir / "root-credentials").read_text())
        made = credentials(command(broker, "user", "create", "shop", by=root).stdout)
        command(broker, "acl", "grant", "shop", "--topic", "*", "--right", "browse", by=root)
        said = [broker.kill()]
        broker.start()
        assert command(broker, "topic", "list", by=made).returncode == 0
        wrong = {**made, "LATERMQ_SECRET_KEY": "not-this-secret"}
        command(broker, "topic", "list", by=wrong, code=2)
        said.append(broker.terminate())
        broker.start()
        assert command(broker, "topic", "list", by=made).returncode == 0
        assert credentials((broker.data_dir / "root-credentials").read_text()) == root
        told = command(broker, "user", "list", "--json", by=root).stdout
        told += command(broker, "acl", "list", by=root).stdout
        said.append(broker.terminate())
        dumped = command(broker, "log", "dump", str(broker.data_dir), by={}).stdout
        dumped += command(broker, "log", "dump", str(broker.data_dir), "--json", by={}).stdout
    text = told + dumped + "".join(life.stdout + life.stderr for life in said)
    assert "shop" in text
    for secret in (root["LATERMQ_SECRET_KEY"], made["LATERMQ_SECRET_KEY"], "not-this-secret"):
        assert secret not in text


def test_a_configured_root_makes_no_other(tmp_path: Path) -> None:
    config = f"[auth]\nenabled = true\n{NAMED}"
    with BrokerProcess(tmp_path / "data", config=config) as broker:
        broker.start()
        assert not (broker.data_dir / "root-credentials").exists()
        root = {"LATERMQ_ACCESS_KEY": ROOT, "LATERMQ_SECRET_KEY": ROOT_SECRET}
        assert "configured" in command(broker, "user", "list", by=root).stdout
        assert ROOT_SECRET not in broker.terminate().stderr


def test_the_last_admin_comes_back_with_a_restart(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", config="[auth]\nenabled = true\n") as broker:
        broker.start()
        root = credentials((broker.data_dir / "root-credentials").read_text())
        command(broker, "user", "disable", "root", by=root)
        command(broker, "user", "list", by=root, code=2)
        assert "others on this machine" not in broker.terminate().stderr
        (broker.data_dir / "log").chmod(0o750)
        broker.start()
        assert "others on this machine" in broker.log_path.read_text()
        again = credentials((broker.data_dir / "root-credentials").read_text())
        assert again["LATERMQ_SECRET_KEY"] != root["LATERMQ_SECRET_KEY"]
        command(broker, "user", "list", by=again)
        command(broker, "user", "list", by=root, code=2)


@pytest.mark.parametrize(
    ("policy", "serves", "says"),
    [("warn", True, "EVERYBODY"), ("allow", True, ""), ("refuse", False, "is open to other")],
)
def test_open_beyond_this_machine(tmp_path: Path, policy: str, serves: bool, says: str) -> None:
    config = f'[auth]\nopen_beyond_loopback = "{policy}"\n'
    with BrokerProcess(tmp_path / "data", config=config, listen="0.0.0.0:0") as broker:
        broker.spawn()
        if not serves:
            ended = broker.wait_end()
            assert ended.code == 2
            assert ended.stderr.splitlines()[-1].startswith("latermq: server.listen")
            assert not broker.data_dir.exists()
            return
        endpoint = broker.wait_ready().replace("0.0.0.0", "127.0.0.1")
        told = command(broker, "user", "create", "x", "--endpoint", endpoint, by={}, code=2)
        assert "users are not shown or changed" in told.stderr
        ended = broker.terminate()
        assert ("EVERYBODY" in ended.stderr) is bool(says)

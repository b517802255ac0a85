"""`latermq user`, `latermq acl`, and how every command shows who it is."""

import json
from collections.abc import Iterator

import pytest

from latermq_cli.connection.credentials import access_of_environment
from support.access_rig import signed
from support.cli_rig import CliRig


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRig]:
    for variable in ("ACCESS_KEY", "SECRET_KEY", "TLS", "CA", "INSECURE_SKIP_VERIFY"):
        monkeypatch.delenv(f"LATERMQ_{variable}", raising=False)
    rig = CliRig(monkeypatch)
    yield rig
    rig.close()


def test_the_life_of_a_user(cli: CliRig) -> None:
    assert "no users yet" in cli.ok("user", "list")
    lines = cli.ok("user", "create", "shop").splitlines()
    assert lines[0] == "LATERMQ_ACCESS_KEY=shop"
    secret = lines[1].removeprefix("LATERMQ_SECRET_KEY=")
    assert cli.engine.users.get("shop").secret == secret
    assert secret not in cli.ok("user", "show", "shop") + cli.ok("user", "list", "--json")
    assert "user, disabled" in cli.ok("user", "disable", "shop")
    assert cli.json("user", "show", "shop")["disabled"] is True
    assert "disabled" not in cli.ok("user", "enable", "shop")
    rotated = cli.json("user", "rotate", "shop")
    assert rotated["secret"] not in ("", secret)
    assert cli.json("user", "create", "ops", "--admin")["admin"] is True
    assert [one["access_key"] for one in cli.json("user", "list")["users"]] == ["ops", "shop"]
    assert cli.ok("user", "delete", "shop", "--yes") == "user shop deleted\n"
    assert "there is no user shop" in cli.missing("user", "show", "shop")


def test_grants(cli: CliRig) -> None:
    cli.ok("user", "create", "billing")
    assert "no rights" in cli.ok("acl", "list", "billing")
    shown = cli.ok(
        "acl", "grant", "billing", "--topic", "orders-*", "--group", "billing", "--right", "sub"
    )
    assert shown.splitlines()[2].split() == ["billing", "group", "billing", "sub"]
    assert shown.splitlines()[3].split() == ["billing", "topic", "orders-*", "sub"]
    cli.ok("acl", "grant", "billing", "--group", "billing", "--right", "redrive", "--json")
    (user,) = cli.json("acl", "list")["users"]
    assert user["grants"][0] == {
        "kind": "group",
        "pattern": "billing",
        "rights": ["redrive", "sub"],
    }
    cli.ok("acl", "revoke", "billing", "--group", "billing", "--right", "sub")
    cli.ok("acl", "revoke", "billing", "--topic", "orders-*")
    assert cli.ok("acl", "list").splitlines()[1].split() == [
        "billing",
        "group",
        "billing",
        "redrive",
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("user", "create", "a b"), "access key 'a b'"),
        (("user", "create"), "NAME"),
        (("acl", "grant", "shop", "--right", "pub"), "--topic PATTERN"),
        (("acl", "grant", "shop", "--topic", "a"), "--right"),
        (("acl", "grant", "shop", "--topic", "a", "--right", "all"), "'all' is not one of"),
        (("acl", "grant", "shop", "--topic", "a*b", "--right", "pub"), "'a*b'"),
        (("acl", "grant", "shop", "--topic", "a", "--right", "redrive"), "'redrive'"),
        (("topic", "list", "--access-key", "shop"), "without the secret key"),
        (("topic", "list", "--secret-key", "s3cret-s3cret"), "without the access key"),
        (("topic", "list", "--ca", "/nowhere.pem"), "cannot read --ca /nowhere.pem"),
    ],
)
def test_refusals(cli: CliRig, words: tuple[str, ...], reason: str) -> None:
    cli.ok("user", "create", "shop")
    line = cli.refused(*words)
    assert reason in line
    assert "s3cret" not in line


def test_a_refused_change_of_grants_changes_none(cli: CliRig) -> None:
    cli.ok("user", "create", "shop")
    said = cli.refused(
        "acl", "grant", "shop", "--topic", "orders", "--group", "billing", "--right", "pub"
    )
    assert said.startswith("latermq: right 'pub' is none of a group")
    assert not cli.json("user", "show", "shop")["grants"]
    cli.ok("acl", "grant", "shop", "--topic", "a", "--topic", "b", "--right", "pub")
    cli.missing("acl", "revoke", "shop", "--topic", "a", "--topic", "c")
    patterns = [each["pattern"] for each in cli.json("user", "show", "shop")["grants"]]
    assert patterns == ["a", "b"]
    cli.ok("acl", "revoke", "shop", "--topic", "a", "--topic", "b")
    assert not cli.json("user", "show", "shop")["grants"]


def test_who_and_what_is_not_there(cli: CliRig) -> None:
    cli.ok("user", "create", "shop")
    grant = ("acl", "grant", "nobody", "--topic", "a", "--right", "pub")
    assert "there is no user nobody" in cli.missing(*grant)
    assert "none of these rights" in cli.missing("acl", "revoke", "shop", "--topic", "a")


def test_nobody_shows_a_certificate(cli: CliRig) -> None:
    words = ("topic", "list", "--insecure-skip-verify", "--endpoint", "127.0.0.1:1")
    assert "no TLS at 127.0.0.1:1" in cli.refused(*words, code=1)


def test_a_command_signs_with_options_or_the_environment(
    cli: CliRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent(*words: str) -> dict[str, str | bytes]:
        cli.ok("topic", "list", *words)
        return dict(cli.transport.metadata[-1])

    assert "authorization" not in sent()
    headers = sent("--access-key", "shop", "--secret-key", "a-secret")
    date = str(headers["x-mq-date-time"])
    assert headers.items() >= signed("shop", "a-secret", date).items()
    monkeypatch.setenv("LATERMQ_ACCESS_KEY", "env")
    monkeypatch.setenv("LATERMQ_SECRET_KEY", "env-secret")
    headers = sent()
    date = str(headers["x-mq-date-time"])
    assert headers.items() >= signed("env", "env-secret", date).items()
    assert "env-secret" not in repr(access_of_environment())


def test_help_names_no_secret(cli: CliRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATERMQ_ACCESS_KEY", "env")
    monkeypatch.setenv("LATERMQ_SECRET_KEY", "env-secret")
    assert "env-secret" not in cli.ok("topic", "list", "--help")
    assert json.dumps(cli.json("topic", "list"))

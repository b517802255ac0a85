"""latermq.v1.Users: what may be asked, what is answered, and that a secret is told once."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from latermq_broker.catalog.access import GRANTS_MAX
from latermq_broker.config.auth import AuthConfig
from latermq_broker.config.config import Config, ServerConfig
from latermq_broker.services.auth.admin_gate import admin_served, users_served
from latermq_broker.services.registry import assemble
from latermq_proto.latermq.v1 import user_pb2
from support.access_rig import ROOT, ROOT_SECRET, AccessRig
from support.fake_call import FakeCall

BAD_REQUEST, NOT_FOUND, FORBIDDEN = 40000, 40400, 40300
TOPIC, GROUP = user_pb2.Grant.TOPIC, user_pb2.Grant.GROUP


@pytest.fixture
def rig() -> Iterator[AccessRig]:
    rig = AccessRig()
    yield rig
    rig.close()


def ask(rig: AccessRig, name: str, response: Any, request: Any) -> Any:
    data = request.SerializeToString()
    call = rig.by(ROOT, ROOT_SECRET)
    return response.FromString(rig.raw(f"/latermq.v1.Users/{name}", data, call))


def create(rig: AccessRig, key: str, **fields: Any) -> user_pb2.SecretResponse:
    request = user_pb2.CreateUserRequest(access_key=key, **fields)
    answer: user_pb2.SecretResponse = ask(rig, "CreateUser", user_pb2.SecretResponse, request)
    return answer


def change(rig: AccessRig, name: str, key: str, **grant: Any) -> user_pb2.UserResponse:
    request = user_pb2.ChangeGrantRequest(access_key=key, grant=user_pb2.Grant(**grant))
    answer: user_pb2.UserResponse = ask(rig, name, user_pb2.UserResponse, request)
    return answer


def test_a_secret_is_made_or_taken_and_told_once(rig: AccessRig) -> None:
    made = create(rig, "ann")
    assert made.status.code == 20000
    assert len(made.secret) == 32
    assert create(rig, "bob", secret="a-secret-of-mine").secret == "a-secret-of-mine"
    assert create(rig, "ann").status.code == BAD_REQUEST
    for name, request, response in (
        ("GetUser", user_pb2.GetUserRequest(access_key="ann"), user_pb2.UserResponse),
        ("ListUsers", user_pb2.ListUsersRequest(), user_pb2.ListUsersResponse),
        ("AlterUser", user_pb2.AlterUserRequest(access_key="ann"), user_pb2.UserResponse),
    ):
        answer = ask(rig, name, response, request)
        assert answer.status.code == 20000
        assert made.secret not in str(answer)
    rotated = ask(
        rig, "RotateUser", user_pb2.SecretResponse, user_pb2.RotateUserRequest(access_key="ann")
    )
    assert rotated.secret not in ("", made.secret)
    assert rotated.user.rotated_at_ms >= made.user.rotated_at_ms


@pytest.mark.parametrize("key", ["", "a b", "a/b", "a,b", "a=b", "ä", "x" * 65, "a\n"])
def test_access_keys_that_no_header_could_carry(rig: AccessRig, key: str) -> None:
    assert create(rig, key).status.code == BAD_REQUEST


@pytest.mark.parametrize(
    "secret", ["short", "fifteen-chars--", "with blanks in it", "x" * 129, "ümlaut-secret-of-mine"]
)
def test_secrets_that_are_none_are_not_repeated(rig: AccessRig, secret: str) -> None:
    refused = create(rig, "ann", secret=secret)
    assert refused.status.code == BAD_REQUEST
    assert secret not in refused.status.message


def test_alter_leaves_what_is_not_said(rig: AccessRig) -> None:
    create(rig, "ann", admin=True)
    request = user_pb2.AlterUserRequest(access_key="ann", disabled=True)
    altered = ask(rig, "AlterUser", user_pb2.UserResponse, request).user
    assert (altered.admin, altered.disabled) == (True, True)
    request = user_pb2.AlterUserRequest(access_key="ann", admin=False)
    altered = ask(rig, "AlterUser", user_pb2.UserResponse, request).user
    assert (altered.admin, altered.disabled) == (False, True)


def test_users_that_are_not_there(rig: AccessRig) -> None:
    for name, request, response in (
        ("GetUser", user_pb2.GetUserRequest(access_key="x"), user_pb2.UserResponse),
        ("AlterUser", user_pb2.AlterUserRequest(access_key="x"), user_pb2.UserResponse),
        ("RotateUser", user_pb2.RotateUserRequest(access_key="x"), user_pb2.SecretResponse),
        ("DeleteUser", user_pb2.DeleteUserRequest(access_key="x"), user_pb2.DeleteUserResponse),
    ):
        assert ask(rig, name, response, request).status.code == NOT_FOUND, name
    one = {"kind": TOPIC, "pattern": "a", "rights": ["pub"]}
    assert change(rig, "GrantRights", "x", **one).status.code == NOT_FOUND
    assert change(rig, "RevokeRights", "x", **one).status.code == NOT_FOUND


@pytest.mark.parametrize(
    "grant",
    [
        {"pattern": "a", "rights": ["pub"]},
        {"kind": 7, "pattern": "a", "rights": ["pub"]},
        {"kind": TOPIC, "pattern": "", "rights": ["pub"]},
        {"kind": TOPIC, "pattern": "a*b", "rights": ["pub"]},
        {"kind": TOPIC, "pattern": "a", "rights": []},
        {"kind": TOPIC, "pattern": "a", "rights": ["redrive"]},
        {"kind": GROUP, "pattern": "a", "rights": ["pub"]},
        {"kind": GROUP, "pattern": "a", "rights": ["everything"]},
    ],
)
def test_grants_that_are_none(rig: AccessRig, grant: dict[str, Any]) -> None:
    assert change(rig, "GrantRights", "shop", **grant).status.code == BAD_REQUEST


def test_grant_and_revoke(rig: AccessRig) -> None:
    change(rig, "GrantRights", "shop", kind=TOPIC, pattern="a*", rights=["sub", "pub", "pub"])
    user = change(rig, "GrantRights", "shop", kind=GROUP, pattern="g", rights=["redrive"]).user
    shown = [(grant.kind, grant.pattern, list(grant.rights)) for grant in user.grants]
    assert shown == [(GROUP, "g", ["redrive"]), (TOPIC, "a*", ["pub", "sub"])]
    user = change(rig, "RevokeRights", "shop", kind=TOPIC, pattern="a*", rights=["pub"]).user
    assert [list(grant.rights) for grant in user.grants] == [["redrive"], ["sub"]]
    again = change(rig, "RevokeRights", "shop", kind=TOPIC, pattern="a*", rights=["pub"])
    assert again.status.code == NOT_FOUND
    user = change(rig, "RevokeRights", "shop", kind=TOPIC, pattern="a*").user  # all of them
    assert [grant.pattern for grant in user.grants] == ["g"]


def test_grants_are_bounded(rig: AccessRig) -> None:
    for index in range(GRANTS_MAX):
        one = {"kind": TOPIC, "pattern": f"t{index}", "rights": ["pub"]}
        assert change(rig, "GrantRights", "shop", **one).status.code == 20000
    one = {"kind": TOPIC, "pattern": "more", "rights": ["pub"]}
    assert change(rig, "GrantRights", "shop", **one).status.code == BAD_REQUEST


def test_the_configured_root_is_shown_and_not_changed(rig: AccessRig) -> None:
    request = user_pb2.ListUsersRequest()
    users = ask(rig, "ListUsers", user_pb2.ListUsersResponse, request).users
    assert [(user.access_key, user.configured) for user in users] == [
        ("root", True),
        ("shop", False),
    ]
    assert create(rig, ROOT).status.code == BAD_REQUEST
    gone = user_pb2.DeleteUserRequest(access_key=ROOT)
    refused = ask(rig, "DeleteUser", user_pb2.DeleteUserResponse, gone)
    assert refused.status.code == BAD_REQUEST


def test_pages(rig: AccessRig) -> None:
    for key in ("a", "b", "c"):
        create(rig, key)
    seen: list[str] = []
    token = ""
    while True:
        request = user_pb2.ListUsersRequest(page_size=2, page_token=token)
        page = ask(rig, "ListUsers", user_pb2.ListUsersResponse, request)
        seen += [user.access_key for user in page.users]
        token = page.next_page_token
        if not token:
            break
    assert seen == ["a", "b", "c", "root", "shop"]


def test_who_may_make_users_where_nobody_is_asked_for_a_name(rig: AccessRig) -> None:
    def config(listen: str, enabled: bool) -> Config:
        auth = AuthConfig(enabled=enabled)
        return Config(server=ServerConfig(listen=listen), auth=auth)

    assert users_served(config("127.0.0.1:1", False))
    assert not users_served(config("0.0.0.0:1", False))
    assert users_served(config("0.0.0.0:1", True))
    assert admin_served(config("0.0.0.0:1", True))

    async def open_to_all() -> Any:
        open_config = replace(
            rig.config, server=ServerConfig(listen="0.0.0.0:1"), auth=AuthConfig()
        )
        return assemble(rig.engine, rig.committer, open_config).methods

    rig.methods = rig.loop.run_until_complete(open_to_all())
    request = user_pb2.CreateUserRequest(access_key="mallory", admin=True).SerializeToString()
    data = rig.raw("/latermq.v1.Users/CreateUser", request, FakeCall())
    assert user_pb2.SecretResponse.FromString(data).status.code == FORBIDDEN
    assert rig.engine.users.find("mallory") is None

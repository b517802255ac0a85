"""The catalogue has the secrets of all users: it is given to shards, and to no admin."""

import pytest

from latermq_broker.cluster.shard import ForShards
from latermq_broker.cluster.shard_headers import is_a_shards, signature_headers
from latermq_broker.config.auth import AuthConfig
from latermq_broker.errors import ForbiddenError
from latermq_broker.services.call.answers import Caller
from latermq_proto.latermq.v1 import cluster_pb2
from support.access_rig import signed
from support.fake_call import FakeCall

AUTH = AuthConfig(enabled=True, root_access_key="root", root_secret_key="the-secret-of-shards")
WALL_MS = 1_795_000_000_000


class Source:
    """Answers whoever comes through."""

    async def copy_catalogue(self, request: object, caller: object) -> str:
        return "everything"


def test_a_shards_own_call_is_marked() -> None:
    headers = dict(signature_headers(AUTH, WALL_MS))
    assert is_a_shards(FakeCall(metadata=headers), AUTH)
    other = AuthConfig(enabled=True, root_access_key="root", root_secret_key="other-secret-0000")
    assert not is_a_shards(FakeCall(metadata=dict(signature_headers(other, WALL_MS))), AUTH)
    later = dict(signature_headers(AUTH, WALL_MS + 1_000))
    overheard = {**later, "x-latermq-shard": headers["x-latermq-shard"]}  # of another date
    assert not is_a_shards(FakeCall(metadata=overheard), AUTH)
    for mark in ("", "ä", "0" * 64):
        assert not is_a_shards(FakeCall(metadata={**headers, "x-latermq-shard": mark}), AUTH)


async def test_an_admin_does_not_copy_the_catalogue() -> None:
    """Nor does the configured one, whose secret shards sign with."""
    admins = signed(AUTH.root_access_key, AUTH.root_secret_key, "20261129T000000Z")
    copying = ForShards(Source(), AUTH)  # type: ignore[arg-type]
    request = cluster_pb2.CopyCatalogueRequest(shard=1)
    with pytest.raises(ForbiddenError, match="only shards"):
        await copying.copy_catalogue(request, Caller("", FakeCall(metadata=admins)))
    headers = dict(signature_headers(AUTH, WALL_MS))
    answer = await copying.copy_catalogue(request, Caller("", FakeCall(metadata=headers)))
    assert answer == "everything"


def test_where_nobody_is_asked_for_a_name_no_secret_is_copied() -> None:
    assert is_a_shards(FakeCall(), AuthConfig())

"""The whole table: every RPC is served, and what comes later says so."""

from typing import Any, cast

import pytest

from latermq_broker.services.registry import assemble, later_methods
from latermq_broker.services.seam import MethodKind
from latermq_proto.apache.rocketmq.v2 import service_pb2
from support.engine_rig import EngineRig
from support.fake_call import FakeCall
from support.fake_committer import FakeCommitter

MESSAGING = "/apache.rocketmq.v2.MessagingService"
ADMIN = "/apache.rocketmq.v2.Admin"


async def test_every_rpc_is_in_the_table_with_its_kind() -> None:
    rig = EngineRig()
    services = assemble(rig.engine, FakeCommitter(rig.now_ms), rig.config)
    methods = services.methods
    kinds = {path: method.kind for path, method in methods.items()}
    assert kinds[f"{MESSAGING}/SendMessage"] is MethodKind.UNARY
    assert kinds[f"{MESSAGING}/ReceiveMessage"] is MethodKind.SERVER_STREAM
    assert kinds[f"{MESSAGING}/PullMessage"] is MethodKind.SERVER_STREAM
    assert kinds[f"{MESSAGING}/Telemetry"] is MethodKind.BIDI_STREAM
    assert kinds["/latermq.v1.DeadLetters/RedriveDeadLetters"] is MethodKind.SERVER_STREAM
    assert kinds["/grpc.health.v1.Health/Check"] is MethodKind.UNARY
    assert len([path for path in methods if path.startswith(f"{MESSAGING}/")]) == 17
    assert len([path for path in methods if path.startswith(f"{ADMIN}/")]) == 16


@pytest.mark.parametrize("path", sorted(later_methods()))
def test_what_comes_later_names_itself_and_is_no_ok(path: str) -> None:
    call = FakeCall(path=path)
    data = later_methods()[path].handler(cast(Any, b""), call)
    assert isinstance(data, bytes)
    name = path.rpartition("/")[2]
    # Every response has its status in field 1.
    status = service_pb2.EndTransactionResponse.FromString(data).status
    assert status.code == 50100
    assert f".{name} is not implemented yet" in status.message


def test_what_comes_later() -> None:
    assert set(later_methods()) == {f"{MESSAGING}/SyncLiteSubscription"}


def test_a_later_method_still_wants_a_client_id() -> None:
    handler = later_methods()[f"{MESSAGING}/SyncLiteSubscription"].handler
    data = handler(cast(Any, b""), FakeCall(client_id=""))
    assert isinstance(data, bytes)
    assert service_pb2.EndTransactionResponse.FromString(data).status.code == 40017

"""The whole table: every RPC is served."""

from latermq_broker.services.call.seam import MethodKind
from latermq_broker.services.registry import assemble
from support.engine_rig import EngineRig
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

"""The whole table: every RPC of the descriptors is answered, by what has its name and its types."""

from inspect import isfunction
from typing import Any, get_type_hints

import pytest
from google.protobuf.message_factory import GetMessageClass

from latermq_broker.services import registry
from latermq_broker.services.call.handler import MethodKind, MethodTable
from latermq_broker.services.registry import FILES, assemble
from latermq_broker.services.rpcs import NEEDS, methods_of, name_of, path_of
from support.engine_rig import EngineRig
from support.fake_committer import FakeCommitter
from support.native import NATIVE

SERVICES = [service for file in FILES for service in file.DESCRIPTOR.services_by_name.values()]
KINDS = {
    (False, False): MethodKind.UNARY,
    (False, True): MethodKind.SERVER_STREAM,
    (True, True): MethodKind.BIDI_STREAM,
}
HEALTH = {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"}
REFLECTION = {
    f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    for version in ("v1", "v1alpha")
}


@pytest.fixture
async def methods() -> MethodTable:
    rig = EngineRig()
    return assemble(rig.engine, FakeCommitter(rig.now_ms), rig.config).methods


async def test_every_rpc_of_the_descriptors_is_answered_in_its_kind(methods: MethodTable) -> None:
    """None is left out: one that has no handler ends the start."""
    kinds = {
        path_of(rpc): KINDS[rpc.client_streaming, rpc.server_streaming]
        for service in SERVICES
        for rpc in service.methods
    }
    assert len(SERVICES) == 14
    assert set(methods) == set(kinds) | HEALTH | REFLECTION
    assert {path: methods[path].kind for path in kinds} == kinds


async def test_what_a_method_needs_is_said_of_rpcs_that_are_there(methods: MethodTable) -> None:
    of_a_cluster = {path for path in NEEDS if path.startswith("/latermq.v1.Cluster/")}
    assert set(NEEDS) - of_a_cluster <= set(methods)
    for path in set(NEEDS) - of_a_cluster:
        method, needs = methods[path], NEEDS[path]
        reserved = 0 if needs.lasting and method.kind is MethodKind.UNARY else needs.reply_bytes
        said = needs.large, needs.small, reserved
        assert (method.large, method.small, method.reply_bytes) == said


MESSAGING = next(service for service in SERVICES if service.name == "MessagingService")


class Recalls:
    def recall_message(self, request: Any, caller: Any) -> bytes:
        return b""


def test_an_rpc_that_nobody_has_the_name_of_is_not_in_a_table() -> None:
    assert [*methods_of(MESSAGING, [Recalls()])] == [f"/{MESSAGING.full_name}/RecallMessage"]


def test_two_that_answer_one_rpc_are_a_bug() -> None:
    with pytest.raises(AssertionError, match="two answer"):
        methods_of(MESSAGING, [Recalls(), Recalls()])


@pytest.mark.skipif(NATIVE, reason="what is compiled has no annotations")
@pytest.mark.parametrize(
    "rpc",
    [rpc for service in SERVICES for rpc in service.methods if not rpc.client_streaming],
    ids=lambda rpc: rpc.full_name,
)
def test_a_handler_takes_what_its_rpc_takes(rpc: Any) -> None:
    """By its types: the table is made by name, so no type checker sees that they fit."""
    name = name_of(rpc)
    classes = [each for each in vars(registry).values() if isinstance(each, type)]
    (answer,) = filter(isfunction, (getattr(each, name, None) for each in classes))
    readers = list(filter(isfunction, (getattr(each, f"read_{name}", None) for each in classes)))
    hints = get_type_hints(answer)
    if readers:
        assert [hints["request"]] == [get_type_hints(read)["return"] for read in readers]
    else:
        assert hints["request"] is GetMessageClass(rpc.input_type)
    if not rpc.server_streaming and isinstance(given := hints["return"], type):
        assert given is GetMessageClass(rpc.output_type)

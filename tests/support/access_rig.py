"""All services behind the guard, on an engine in memory; calls are signed by whom a test names."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from google.protobuf.message import Message

from latermq_broker.catalog.access import Kind, Right
from latermq_broker.config.auth import AuthConfig
from latermq_broker.config.config import SchedulesConfig
from latermq_broker.config.server_transport import ClientCertificates, TlsConfig
from latermq_broker.services.auth.signature import sign
from latermq_broker.services.call.handler import MethodKind
from latermq_broker.services.registry import Services, assemble
from support.fake_call import CLIENT_ID, FakeCall
from support.v1_rig import V1Rig

ROOT, ROOT_SECRET = "root", "the-secret-of-root"
USER, USER_SECRET = "shop", "the-secret-of-shop"


def signed(access_key: str, secret: str, date: str) -> dict[str, str]:
    """The headers as the official Python client writes them."""
    return {
        "x-mq-date-time": date,
        "authorization": f"MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, "
        f"Signature={sign(secret, date).hex()}",
    }


class AccessRig(V1Rig):
    """A root of the configuration, and a user `shop` who may do nothing yet."""

    def __init__(
        self, auth: AuthConfig | None = None, schedules: SchedulesConfig | None = None
    ) -> None:
        self._auth = auth or AuthConfig(
            enabled=True, root_access_key=ROOT, root_secret_key=ROOT_SECRET
        )
        super().__init__(schedules=schedules)
        self.engine.users.create(USER, USER_SECRET, admin=False, now_ms=self.now_ms)

    async def _assemble(self) -> Services:
        asking = TlsConfig(
            enabled=True, client_ca="ca.pem", client_certificates=ClientCertificates.OPTIONAL
        )
        self.config = replace(self.config, auth=self._auth, tls=asking)
        self.services = assemble(self.engine, self.committer, self.config)
        return self.services

    def assemble_again(self) -> None:
        """On the engine, and by the configuration, of now."""
        self.methods = self.loop.run_until_complete(self._assemble()).methods

    @property
    def date(self) -> str:
        return datetime.fromtimestamp(self.now_ms // 1_000, UTC).strftime("%Y%m%dT%H%M%SZ")

    def by(
        self, access_key: str = USER, secret: str = USER_SECRET, client_id: str = CLIENT_ID
    ) -> FakeCall:
        """A call that this user signed now."""
        return FakeCall(metadata=signed(access_key, secret, self.date), client_id=client_id)

    def grant(self, kind: Kind, pattern: str, *rights: Right) -> None:
        """To `shop`."""
        self.engine.users.grant(USER, kind, pattern, frozenset(rights), self.now_ms)

    def code_of(self, path: str, request: Message, response: type[Any], call: FakeCall) -> int:
        """Of the first answer; of one without a status (ChangeLogLevel) by its words."""
        data = request.SerializeToString()
        if self.methods[path].kind is MethodKind.UNARY:
            answer = response.FromString(self.raw(path, data, call))
        else:
            answer = response.FromString(self.raw_stream(path, data, call)[0])
        if "status" in response.DESCRIPTOR.fields_by_name:
            return int(answer.status.code)
        return {"needs": 40300, "not signed": 40100}.get(
            next((words for words in ("needs", "not signed") if words in answer.remark), ""), 20000
        )

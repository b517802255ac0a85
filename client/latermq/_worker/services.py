"""Which service an app is of, and whether another one's workers take the messages of its groups.

A service is an app's name; of an app without one, the module and variable that it is made in. Two
versions of a service have the same one, so that a new version may start while the old one runs.
"""

import logging
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import unwrap
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NamedTuple

from latermq._values import arguments
from latermq._worker.calls import Function
from latermq._worker.declaring import SOON_S
from latermq._worker.payload_types import called
from latermq.admin import AsyncAdmin
from latermq.errors import LaterMQError
from latermq_proto.latermq.v1 import group_pb2

if TYPE_CHECKING:
    from latermq._worker.worker import Listening
    from latermq.client import Client
    from latermq.push_consumer import PushConsumer

log = logging.getLogger("latermq.worker")

NAME_CHARACTERS_MAX: Final = 63
HINT: Final = (
    "each message goes to one of the two: give one a group of its own, or name both apps, "
    "App(name=…), alike if they are one service"
)
_OURS: Final = ("latermq.app", "latermq.kafka._app", __name__)  # modules that make apps for others
_NAME: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{NAME_CHARACTERS_MAX}}}")
_UNNAMED: Final = "module "


def check_app_name(name: str | None) -> None:
    """Raises TypeError, ValueError: this begins no name of a topic, a group or a schedule."""
    arguments.optional_text("name", name)
    if name is not None and _NAME.fullmatch(name) is None:
        raise ValueError(
            f"name must be 1 to {NAME_CHARACTERS_MAX} of a-z A-Z 0-9 _ -, not {name!r}"
        )


class Maker(NamedTuple):
    """Where an app is made: a module, and a function of it; "": in none."""

    module: str
    function: str


def maker_here() -> Maker:
    """Return the caller of those that make apps for others."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in _OURS:
        frame = frame.f_back
    if frame is None:
        return Maker("", "")
    function = frame.f_code.co_name
    module = str(frame.f_globals.get("__name__", ""))
    return Maker(module, "" if function == "<module>" else function)


def service_of(app: object, name: str | None, maker: Maker) -> str:
    """Return an app's name, or "module MODULE:WHERE": its variable, or its maker's function."""
    if name is not None:
        return name
    where = maker.function
    if not where:
        variables = vars(sys.modules.get(maker.module, object))
        where = next((key for key, value in sorted(variables.items()) if value is app), "")
    return f"{_UNNAMED}{_shown(maker.module)}{where and ':'}{where}"


def _shown(module: str) -> str:
    """Name a module as an import would; a script by its file's stem."""
    main = sys.modules["__main__"]
    if module != "__main__":
        return module
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m
        return str(spec.name).removesuffix(".__main__")
    return Path(getattr(main, "__file__", None) or module).stem


class Serving(NamedTuple):
    """An app whose listeners are served by a worker of this process."""

    app: object
    service: str
    client: "Client"
    listening: Sequence["Listening"]
    consumers: Sequence["PushConsumer"]


_serving: list[Serving] = []


@contextmanager
def known_here(serving: Serving) -> Iterator[None]:
    """Have other apps of this process know of it for as long as the block lasts."""
    _serving.append(serving)
    try:
        yield
    finally:
        _serving.remove(serving)


async def warn_of_others(serving: Serving) -> None:
    """Log a WARNING for each topic and group whose messages another service's workers take, too."""
    shared = {(each.topic, each.group) for each in serving.listening if not each.broadcast}
    warned: set[tuple[str, str, str]] = set()
    for topic, group, client_id in _here(serving, shared):
        warned.add((topic, group, serving.service))
        _warn(topic, group, f"another App of this process (client {client_id})")
    for endpoints in serving.client._connections.present:
        admin = serving.client._admin_at(endpoints)
        for group in sorted({group for _, group in shared}):
            for topic, use in await _uses(admin, group):
                key = (topic, group, use.service)
                if use.service == serving.service or (topic, group) not in shared or key in warned:
                    continue
                warned.add(key)
                more = f", {use.client_count} workers" if use.client_count > 1 else ""
                _warn(
                    topic, group, f"{use.service} (client {use.client_id} at {use.address}{more})"
                )


def _here(serving: Serving, shared: set[tuple[str, str]]) -> Iterable[tuple[str, str, str]]:
    """Find apps of this process without a name that have another function for a topic and group."""
    if not serving.service.startswith(_UNNAMED):
        return
    ours = {(each.topic, each.group): _code_of(each.function) for each in serving.listening}
    for other in list(_serving):
        if other.app is serving.app or other.service != serving.service:
            continue
        if other.client._endpoints != serving.client._endpoints:
            continue
        for each, consumer in zip(other.listening, other.consumers, strict=True):
            place = (each.topic, each.group)
            if place in shared and not each.broadcast and _code_of(each.function) != ours[place]:
                yield (*place, consumer._session.profile.client_id)


def _code_of(function: Function) -> object:
    """Return what two functions of one definition have in common."""
    return getattr(called(unwrap(function)), "__code__", function)


async def _uses(admin: AsyncAdmin, group: str) -> list[tuple[str, group_pb2.ServiceUse]]:
    """Ask one broker; one that does not answer, or may not be asked, knows of nobody."""
    request = group_pb2.ListServicesRequest(group=group)
    try:
        answer = await admin.call(admin.groups.ListServices, request, timeout_s=SOON_S)
    except LaterMQError as error:
        log.debug("who else serves group %s is not known: %s", group, error)
        return []
    return [(each.topic, use) for each in answer.services for use in each.services]


def _warn(topic: str, group: str, who: str) -> None:
    log.warning(
        "group %s: messages of topic %s are taken by another service, too, %s; %s",
        group, topic, who, HINT,
    )  # fmt: skip

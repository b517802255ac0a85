"""Refuses calls that name a namespace: a broker has none.

A client that is given a namespace puts it beside the names of topics and groups (`v2.Resource`),
and into a header of each call; consumers in Node.js only there. Without the refusal clients of two
namespaces would share topics. Which fields of a request are such names is read from its descriptor.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from google.protobuf.message import Message

from latermq_broker.errors import BadRequestError
from latermq_broker.services.call.field_counts import is_repeated
from latermq_broker.services.call.names import shown
from latermq_proto.apache.rocketmq.v2 import definition_pb2

NAMESPACE_HEADER: Final = "x-mq-namespace"
_RESOURCE: Final = definition_pb2.Resource.DESCRIPTOR.full_name


class NamespaceError(BadRequestError):
    """A call names a namespace.

    Args:
        request: as it was read, where that has it; a refusal repeats parts of some requests.
    """

    def __init__(self, namespace: str, request: Any = None) -> None:
        super().__init__(
            f"namespace {shown(namespace)} is refused (compat.namespaces = refuse): give the "
            "client none, or begin the names of its topics and groups with it"
        )
        self.request = request


class Namespaces:
    """The check for requests of one kind.

    Args:
        descriptor: the request's.
    """

    __slots__ = ("_each", "_lists")

    def __init__(self, descriptor: Any) -> None:
        self._each: list[Callable[[Any], Any]] = []  # namespaces of single names
        self._lists: list[tuple[Callable[[Any], Any], Namespaces]] = []
        self._add(descriptor, "")

    def _add(self, descriptor: Any, before: str) -> None:
        """Find the names in a message that stands in the field `before`, which ends with a dot."""
        if descriptor.full_name == _RESOURCE:
            self._each.append(attrgetter(f"{before}resource_namespace"))
            return
        for field in descriptor.fields:
            if field.message_type is None:
                continue
            if not is_repeated(field):
                self._add(field.message_type, f"{before}{field.name}.")
                continue
            inner = Namespaces(field.message_type)
            if inner.has_names:
                self._lists.append((attrgetter(f"{before}{field.name}"), inner))

    @property
    def has_names(self) -> bool:
        """Tell whether such a request can name a namespace at all."""
        return bool(self._each or self._lists)

    def check(self, message: Message) -> None:
        """Refuse a request that names a namespace. Raises NamespaceError: it does."""
        namespace = self._first(message)
        if namespace:
            raise NamespaceError(namespace, message)

    def _first(self, message: Message) -> str:
        """Find the first namespace; "" where there is none."""
        for get in self._each:
            namespace: str = get(message)
            if namespace:
                return namespace
        for elements, inner in self._lists:
            for element in elements(message):
                namespace = inner._first(element)
                if namespace:
                    return namespace
        return ""

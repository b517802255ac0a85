"""What the Spark source refuses or cannot do.

Spark shows a user nothing but a traceback's text inside its own exception. So every text here is
one line, and starts with a stable code that scripts and alerts may look for.
"""

from typing import ClassVar


class SourceError(Exception):
    """The root: `str()` is `CODE: text`, on one line."""

    code: ClassVar[str] = "LATERMQ_ERROR"

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split()))

    def __str__(self) -> str:
        return f"{self.code}: {self.args[0]}"


class OptionError(SourceError):
    """An option that does not exist, or a value that makes no sense."""

    code = "LATERMQ_OPTION"


class SchemaError(SourceError):
    """A column that the source does not have, or not with that type."""

    code = "LATERMQ_SCHEMA"


class OffsetError(SourceError):
    """Offsets that this version cannot read."""

    code = "LATERMQ_OFFSET"


class TopicNotFoundError(SourceError):
    """A topic was named that the broker does not have."""

    code = "LATERMQ_TOPIC_NOT_FOUND"


class DataLossError(SourceError):
    """Messages that were to be read are gone, and `failOnDataLoss` is true."""

    code = "LATERMQ_DATA_LOSS"


class BrokerUnreachableError(SourceError):
    """A call kept failing for `retryFor`."""

    code = "LATERMQ_UNREACHABLE"


class BrokerRefusedError(SourceError):
    """The broker answered, with an error that trying again does not cure."""

    code = "LATERMQ_REFUSED"


class ProtocolError(SourceError):
    """The broker answered something that `latermq.v1` does not allow."""

    code = "LATERMQ_PROTOCOL"

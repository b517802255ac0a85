"""Every status has an error, every error its code."""

import pickle

import pytest

import latermq
from latermq.codes import Code
from latermq.errors import _CLASSES, error_for
from latermq_proto.apache.rocketmq.v2 import definition_pb2


def test_codes_are_the_protocols() -> None:
    protocol = dict(definition_pb2.Code.items())
    del protocol["CODE_UNSPECIFIED"]
    assert {code.name: code.value for code in Code} == protocol


@pytest.mark.parametrize("code", Code)
def test_every_code_has_an_error_that_carries_it(code: Code) -> None:
    error = error_for(code, "why")
    assert (error.code, error.message) == (code, "why")
    assert str(error) == f"why [{code.name} {code.value}]"
    assert getattr(latermq.errors, type(error).__name__) is type(error)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (40099, latermq.errors.BadRequestError),
        (50099, latermq.errors.ServerError),
        (70000, latermq.errors.RequestError),
        (0, latermq.errors.RequestError),
    ],
)
def test_codes_of_the_future(code: int, kind: type[latermq.errors.RequestError]) -> None:
    error = error_for(code, "new")
    assert type(error) is kind
    assert str(error) == f"new [status {code}]"


def test_the_tree_is_flat() -> None:
    assert all(kind.__bases__ == (latermq.errors.RequestError,) for kind in _CLASSES.values())


def test_errors_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(error_for(Code.TOPIC_NOT_FOUND, "no topic orders")))
    assert isinstance(error, latermq.errors.TopicNotFoundError)
    assert (error.code, error.message) == (Code.TOPIC_NOT_FOUND, "no topic orders")


def test_pickled_they_still_say_what_is_stored() -> None:
    late = error_for(Code.REQUEST_TIMEOUT, "late")
    full = error_for(Code.INTERNAL_SERVER_ERROR, "disk full: need 2 bytes")
    full.stored = None  # as a send notes whose first try may have stored it
    partial = pickle.loads(pickle.dumps(latermq.errors.PartialSendError([late, full])))
    assert isinstance(partial, latermq.errors.PartialSendError)
    kinds = [type(each) for each in partial.outcomes]
    assert kinds == [latermq.errors.RequestTimeoutError, latermq.errors.DiskFullError]
    assert partial.outcomes[1].stored is None  # type: ignore[union-attr]


def test_errors_without_a_broker_have_no_code() -> None:
    assert latermq.errors.UnavailableError("gone").code == 0
    assert latermq.errors.ClosedError("closed").code == 0

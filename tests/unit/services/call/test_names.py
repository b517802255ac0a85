"""The rules of names and of properties (RocketMQ protocol facts §4.6, §8), with their texts."""

from collections.abc import Callable

import pytest

from latermq_broker import errors
from latermq_broker.services.call import names


@pytest.mark.parametrize("name", ["a", "orders", "A-z_09", "%x|y", "t" * 127, "%DLQ%" + "g" * 250])
def test_topics_that_pass(name: str) -> None:
    names.check_topic(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("t" * 128, "127"),
        ("%RETRY%" + "g" * 249, "255"),
        ("or ders", "'or ders'"),
        ("orders\n", "other characters"),
        ("Bestellung.ö", "other characters"),
        ("TBW102", "system topic"),
        ("SCHEDULE_TOPIC_XXXX", "system topic"),
        ("rmq_sys_x", "system topic"),
    ],
)
def test_topics_that_do_not(name: str, text: str) -> None:
    with pytest.raises(errors.IllegalTopicError, match=text):
        names.check_topic(name)


def test_a_name_that_is_known_is_held_against_each_limit_and_rule() -> None:
    for number in range(3_000):  # more than are remembered
        names.check_topic(f"topic-{number}")
        names.check_group(f"topic-{number}")
    assert names.has_name_characters.cache_info().currsize == names.NAMES_KEPT_MAX
    for known, error in (
        ("t" * 127, "longer than 120"),
        ("CID_RMQ_SYS_group", "is a system group"),
    ):
        names.check_topic(known)
        with pytest.raises(errors.IllegalGroupError, match=error):
            names.check_group(known)
    names.check_group("rmq_sys_topic")
    with pytest.raises(errors.IllegalTopicError, match="is a system topic"):
        names.check_topic("rmq_sys_topic")


@pytest.mark.parametrize("name", ["g", "billing-1", "g" * 120, "DEFAULT_CONSUMER"])
def test_groups_that_pass(name: str) -> None:
    names.check_group(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [("", "blank"), ("g" * 121, "120"), ("a/b", "'a/b'"), ("CID_RMQ_SYS_x", "CID_RMQ_SYS_")],
)
def test_groups_that_do_not(name: str, text: str) -> None:
    with pytest.raises(errors.IllegalGroupError, match=text):
        names.check_group(name)


@pytest.mark.parametrize(
    ("check", "error"),
    [
        (names.check_tag, errors.IllegalTagError),
        (names.check_key, errors.IllegalKeyError),
        (names.check_message_group, errors.IllegalMessageGroupError),
    ],
)
def test_tags_keys_and_message_groups(
    check: Callable[[str], None], error: type[errors.RequestError]
) -> None:
    for fine in ("", "a", "two words", "Zürich", "日本"):
        check(fine)
    for bad in (" ", "\t\n", "a\x00b", "a\x7f", "a\x85b"):
        with pytest.raises(error):
            check(bad)


def test_a_tag_has_no_separator() -> None:
    with pytest.raises(errors.IllegalTagError, match=r"'a\|b'"):
        names.check_tag("a|b")


def test_a_message_group_is_measured_in_bytes() -> None:
    names.check_message_group("g" * 63)
    names.check_message_group("ü" * 31)
    with pytest.raises(errors.IllegalMessageGroupError, match=r"64 bytes.*63"):
        names.check_message_group("ü" * 32)


@pytest.mark.parametrize("message_id", ["", " ", "\n", "\x1b[2J", "a\nb", "a\x9bb", "a\x00"])
def test_a_message_id_is_not_blank_and_has_no_control_characters(message_id: str) -> None:
    with pytest.raises(errors.IllegalMessageIdError):
        names.check_message_id(message_id)


def test_properties_are_counted_and_measured() -> None:
    assert names.check_properties({}) == 0
    assert names.check_properties({"a": "b", "ü": "日"}) == 1 + 1 + 2 + 3
    names.check_properties({str(n): "" for n in range(128)})
    with pytest.raises(errors.PropertiesTooLargeError, match=r"129.*128"):
        names.check_properties({str(n): "" for n in range(129)})


@pytest.mark.parametrize("key", sorted(names.RESERVED_PROPERTIES))
def test_a_reserved_property_is_refused_by_name(key: str) -> None:
    with pytest.raises(errors.IllegalPropertyKeyError, match="reserved") as caught:
        names.check_properties({key: "x"})
    assert repr(key) in str(caught.value)


@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a": "b\x01"}])
def test_properties_have_no_control_characters(properties: dict[str, str]) -> None:
    with pytest.raises(errors.IllegalPropertyKeyError, match="control"):
        names.check_properties(properties)


def test_properties_tag_and_keys_together_have_a_limit() -> None:
    names.check_properties_size(16_384)
    with pytest.raises(errors.PropertiesTooLargeError, match=r"16385.*16384"):
        names.check_properties_size(16_385)


def test_a_long_value_is_cut_in_the_text() -> None:
    with pytest.raises(errors.IllegalTopicError) as caught:
        names.check_topic("x" * 100_000)
    assert len(str(caught.value)) < 200

"""Which topics and groups an answer may name to a user who asked about something else.

A row of `access_rules` says what a call needs of the things that its request names. What its answer
names besides is shown to those who have a right on it. `browse` shows more: on a topic the groups
that read it, on a group the topics that it reads.
"""

from collections.abc import Callable

from latermq_broker.catalog.access import RIGHTS_OF, Kind, User
from latermq_broker.catalog.catalog import INTERNAL_PREFIXES
from latermq_broker.engine.engine import Engine
from latermq_broker.errors import TopicNotFoundError
from latermq_broker.services.auth.access_rules import BROWSE, group, meets, topic

May = Callable[[str], bool]


def may_name(user: User | None, kind: Kind, name: str) -> bool:
    """Tell whether a user has any right on a topic or a group; None: nobody is asked for a name."""
    return user is None or any(user.may(right, kind, name) for right in RIGHTS_OF[kind])


def topics_of_group(user: User | None, name: str) -> May:
    """Return the test for topics that an answer about a group may name."""
    if user is None or meets(user, group(name, BROWSE)):
        return lambda topic_name: True
    return lambda topic_name: may_name(user, Kind.TOPIC, topic_name)


def groups_of_topic(user: User | None, name: str) -> May:
    """Return the test for groups that an answer about a topic may name."""
    if user is None or meets(user, topic(name, BROWSE)):
        return lambda group_name: True
    return lambda group_name: may_name(user, Kind.GROUP, group_name)


def require_told(engine: Engine, user: User | None, group_name: str, topic_name: str) -> None:
    """Refuse a topic that a call about a group names, as one that is not there.

    It is refused unless the user has a right on it or the group reads it: whether another topic
    exists is not told.

    Raises:
        GroupNotFoundError, TopicNotFoundError: as named.
    """
    if user is None or may_name(user, Kind.TOPIC, topic_name):
        return
    if topic_name.startswith(INTERNAL_PREFIXES) and meets(user, topic(topic_name, BROWSE)):
        return
    read = engine.groups.describe(group_name).topics
    if all(each.topic != topic_name for each in read):
        raise TopicNotFoundError(topic_name)

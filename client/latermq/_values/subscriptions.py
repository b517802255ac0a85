"""What a consumer subscribes to: topics and their filters."""

from collections.abc import Mapping

from latermq._values import arguments
from latermq._values.settings import MATCH_ALL


def subscriptions(topics: str | Mapping[str, str], tags: str) -> dict[str, str]:
    """Return the filter of each topic.

    Raises:
        TypeError: neither a name, nor names with their filters.
        ValueError: a name is empty, or `tags` is given beside filters.
    """
    arguments.text("tags", tags)
    if isinstance(topics, str):
        arguments.name_of("topics", topics)
        return {topics: tags}
    if not isinstance(topics, Mapping):
        raise arguments.wrong("topics", "a str, or a mapping of names to filters", topics)
    arguments.text_mapping("topics", topics)
    if tags != MATCH_ALL:
        raise ValueError("give the filters with the topics")
    return dict(topics)

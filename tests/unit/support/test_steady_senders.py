"""What senders tell of owners: how long nobody answered, and who answered too late."""

from support.steady_senders import Sent, story_of


def sent(*answers: tuple[str, float]) -> list[Sent]:
    return [Sent("m", endpoint, at_s - 0.01, at_s) for endpoint, at_s in answers]


def test_a_move_is_from_one_owners_last_answer_to_the_next_ones_first() -> None:
    story = story_of(sent(("a", 0.0), ("a", 1.0), ("b", 3.5), ("b", 7.5), ("c", 8.0)))
    assert story.moves_s == (2.5, 0.5)
    assert (story.silence_s, story.new_owners, story.late) == (4.0, 2, 0)


def test_who_answers_behind_the_next_owner_is_late() -> None:
    story = story_of(sent(("a", 0.0), ("b", 1.0), ("a", 1.5), ("b", 2.0)))
    assert (story.moves_s, story.new_owners, story.late) == ((1.0,), 1, 1)

"""Spans of offsets against a set."""

from hypothesis import given
from hypothesis import strategies as st

from latermq_broker.delivery.order.spans import Spans

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "drop"]), st.integers(0, 30), st.integers(1, 5))
)


@given(STEPS)
def test_spans_are_a_set(steps: list[tuple[str, int, int]]) -> None:
    spans, known = Spans(), set[int]()
    for kind, offset, count in steps:
        if kind == "add":
            spans.add(offset, offset + count)
            known.update(range(offset, offset + count))
        else:
            spans.drop_below(offset)
            known = {each for each in known if each >= offset}
        assert {each for start, end in spans for each in range(start, end)} == known
        assert spans.count == len(known)
        ends = [end for _, end in spans]
        assert all(start > end for end, (start, _) in zip(ends, list(spans)[1:], strict=False))
        for probe in range(37):
            free = next(each for each in range(probe, 99) if each not in known)
            assert spans.after(probe) == free
            assert spans.holds(probe) == (probe in known)
            assert spans.count_from(probe) == sum(each >= probe for each in known)
            starts = [start for start, _ in spans if start > probe]
            assert spans.start_after(probe) == min(starts, default=-1)

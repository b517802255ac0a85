from latermq_broker.delivery.failure import Failure, signature


def failure(text: str, class_name: str = "TimeoutError", stack_hash: str = "ab") -> Failure:
    return Failure(class_name, text, stack_hash, "stack")


def test_numbers_ids_and_blanks_do_not_matter() -> None:
    one = failure("order 17 of 3f2504e0-4f89-11d3-9a0c-0305e82c3301 at 0x7fa2  took 12.5 s")
    two = failure("order 99999 of 9b2504e0-1111-22d3-9a0c-0305e82c33ff at 0x11\n took 1.25 s")
    assert signature(one) == signature(two)
    assert len(signature(one)) == 16
    assert int(signature(one), 16) >= 0


def test_class_words_and_stack_matter() -> None:
    told = [
        failure("a"),
        failure("b"),
        failure("a", class_name="ValueError"),
        failure("a", stack_hash="cd"),
    ]
    assert len({signature(one) for one in told}) == 4


def test_nothing_told_has_no_signature() -> None:
    assert signature(None) == signature(Failure()) == ""

"""Regular expressions over topic names, by RE2: no pattern makes it try again.

The syntax is Python's, as far as it needs no backtracking: no back-references, no look around, no
possessive repeats. What RE2 alone knows is refused, and so is what it reads in another way. A match
is of the whole name, so greedy and lazy repeats are the same.
"""

import re
import warnings
from typing import Final

from latermq_broker.errors import BadRequestError
from latermq_broker.services.call.names import shown

CHARACTERS_MAX: Final = 256
MEMORY_BYTES_MAX: Final = 64 << 10
"""Of a compiled pattern and what it learns; with it, the worst one found takes 70 µs for a name."""

_NO_LEAST: Final = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^]\\])*\])|\{(?=,[0-9]*\})", re.DOTALL)


class TopicPattern:
    """One pattern.

    Raises:
        BadRequestError: too long, too large, or none that is known here.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > CHARACTERS_MAX:
            raise BadRequestError(
                f"the topic pattern has {len(pattern)} characters, at most {CHARACTERS_MAX} "
                "are allowed"
            )
        import re2  # 3 MB that only brokers with readers need

        options = re2.Options()
        options.max_mem, options.never_capture, options.log_errors = MEMORY_BYTES_MAX, True, False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # what Python is going to read in another way
                re.compile(pattern)
            if "[:" in pattern:
                raise ValueError("'[:', which names a class of characters elsewhere")
            # `{,3}` is text to RE2.
            text = _NO_LEAST.sub(lambda match: match[1] or "{0", pattern)
            self._expression = re2.compile(text, options)
        except (re.error, re2.error, OverflowError, RecursionError, ValueError, Warning) as error:
            reason = error.args[0] if error.args else ""
            why = reason.decode() if isinstance(reason, bytes) else str(error)
            raise BadRequestError(f"topic pattern {shown(pattern)}: {why}") from None

    def matches(self, name: str) -> bool:
        """Tell whether the whole name matches."""
        return self._expression.fullmatch(name) is not None

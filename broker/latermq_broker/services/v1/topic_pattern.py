"""Regular expressions over topic names, in time that the broker bounds.

A pattern is compiled to a small program of which all ways are followed at once, so no pattern and
no name makes it try again: a character costs one step for each instruction that may be next, and
nothing where these instructions met this character before.

The syntax is Python's, without what needs another machine: no back-references, no look around, no
possessive repeats, no word boundaries. A match is of the whole name, so greedy and lazy repeats
are the same, and groups capture nothing.
"""

import re
from typing import Final, NamedTuple

from latermq_broker.errors import BadRequestError
from latermq_broker.services.call.names import shown

CHARACTERS_MAX: Final = 256
NESTED_MAX: Final = 16  # groups inside each other
INSTRUCTIONS_MAX: Final = 512  # after repeats were written out
STEPS_MAX: Final = 1_000_000  # of all names that one pattern is asked about
KNOWN_MAX: Final = 4_096  # pairs of instructions and a character whose outcome is remembered

ASCII: Final = (1 << 128) - 1  # topics have no other characters
UNBOUNDED: Final = -1

_CHARACTERS: Final = 0  # one of `mask`, then the next instruction
_FORK: Final = 1  # the next instruction and `other`
_JUMP: Final = 2  # `other`
_AT_START: Final = 3
_AT_END: Final = 4
_MATCH: Final = 5

_COUNTS: Final = re.compile(r"\{([0-9]{0,9})(,?)([0-9]{0,9})\}", re.ASCII)
_GROUP: Final = re.compile(r"\?(?::|P<[a-zA-Z_][a-zA-Z0-9_]*>)", re.ASCII)
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


def _mask_of(kind: str) -> int:
    test = re.compile(kind)
    return sum(1 << code for code in range(128) if test.match(chr(code)))


_CLASSES: Final = {letter: _mask_of(f"\\{letter}") for letter in "dDwWsS"}
_NOT_NEWLINE: Final = ASCII & ~(1 << 10)


class _Instruction(NamedTuple):
    kind: int
    mask: int = 0
    other: int = 0


_Code = list[_Instruction]  # jumps are relative to the instruction they stand in


class TopicPattern:
    """One pattern, and what was learned from the names it was asked about.

    Raises:
        BadRequestError: too long, too large, or none that is known here.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > CHARACTERS_MAX:
            raise BadRequestError(
                f"the topic pattern has {len(pattern)} characters, at most {CHARACTERS_MAX} "
                "are allowed"
            )
        self.steps = 0  # taken so far
        self._pattern = pattern
        code = _Parser(pattern).whole()
        code.append(_Instruction(_MATCH))
        self._code = code
        self._start = self._reached((0,), at_start=True, at_end=False)
        self._known: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._accepts: dict[frozenset[int], bool] = {}

    def matches(self, name: str) -> bool:
        """Tell whether the whole name matches.

        Raises:
            BadRequestError: all names together took more than STEPS_MAX.
        """
        if not name.isascii():
            return False
        known = self._known
        here = self._start
        if not name:
            return self._is_end(self._reached(tuple(here), at_start=True, at_end=True))
        for character in name:
            following = known.get((here, character))
            if following is None:
                following = self._step(here, character)
            here = following
            if not here:
                return False
        accepts = self._accepts.get(here)
        if accepts is None:
            self._forget_much()
            ways = self._reached(tuple(here), at_start=False, at_end=True)
            accepts = self._accepts[here] = self._is_end(ways)
        return accepts

    def _step(self, here: frozenset[int], character: str) -> frozenset[int]:
        code = self._code
        bit = 1 << ord(character)
        taken = tuple(at + 1 for at in here if code[at].mask & bit)
        following = self._reached(taken, at_start=False, at_end=False)
        self._spend(len(here))
        self._forget_much()
        self._known[here, character] = following
        return following

    def _reached(self, begins: tuple[int, ...], *, at_start: bool, at_end: bool) -> frozenset[int]:
        """List the instructions that wait for a character or for the end, reached from `begins`."""
        code = self._code
        seen = set(begins)
        left = list(seen)
        waiting: list[int] = []
        while left:
            at = left.pop()
            kind, _, other = code[at]
            if kind in (_CHARACTERS, _MATCH) or (kind == _AT_END and not at_end):
                waiting.append(at)
                continue
            following = [at + other] if kind == _JUMP else [at + 1]
            if kind == _FORK:
                following.append(at + other)
            elif kind == _AT_START and not at_start:
                continue
            for each in following:
                if each not in seen:
                    seen.add(each)
                    left.append(each)
        self._spend(len(seen))
        return frozenset(waiting)

    def _is_end(self, ways: frozenset[int]) -> bool:
        return len(self._code) - 1 in ways

    def _spend(self, steps: int) -> None:
        self.steps += steps + 1
        if self.steps > STEPS_MAX:
            raise BadRequestError(
                f"topic pattern {shown(self._pattern)} needs more than {STEPS_MAX} steps for the "
                "topics there are: say it with fewer repeats"
            )

    def _forget_much(self) -> None:
        if len(self._known) + len(self._accepts) >= KNOWN_MAX:
            self._known.clear()
            self._accepts.clear()


class _Parser:
    """From text to instructions, left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._any_case = text.startswith("(?i)")
        if self._any_case:
            self._at = 4

    def whole(self) -> _Code:
        """Read the whole pattern. Raises BadRequestError."""
        code = self._choice()
        if self._at < len(self._text):
            raise self._refused("a ) without its (")
        return code

    def _refused(self, why: str) -> BadRequestError:
        return BadRequestError(
            f"topic pattern {shown(self._text)} is not a regular expression that is known here: "
            f"at character {self._at + 1}, {why}"
        )

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _bounded(self, count: int) -> None:
        if count > INSTRUCTIONS_MAX:
            raise self._refused(f"more than {INSTRUCTIONS_MAX} instructions with all its repeats")

    def _choice(self) -> _Code:
        code = self._sequence()
        while self._next() == "|":
            self._at += 1
            other = self._sequence()
            self._bounded(len(code) + len(other) + 2)
            jump = _Instruction(_JUMP, other=len(other) + 1)
            fork = _Instruction(_FORK, other=len(code) + 2)
            code = [fork, *code, jump, *other]
        return code

    def _sequence(self) -> _Code:
        code: _Code = []
        while self._next() not in ("", "|", ")"):
            code += self._repeated()
            self._bounded(len(code))
        return code

    def _repeated(self) -> _Code:
        begin = self._at
        code = self._atom()
        bounds = self._bounds()
        if bounds is None:
            return code
        if self._text[begin] in "^$":
            raise self._refused("a repeat of ^ or $")
        low, high = bounds
        if self._next() == "?":
            self._at += 1  # lazy: the same to a whole match
        elif self._next() == "+":
            raise self._refused("a possessive repeat")
        at = self._at
        if self._bounds() is not None:
            raise self._refused("a repeat of a repeat")
        self._at = at
        # An empty code counts too: it would be written out as often.
        self._bounded((len(code) + 2) * max(low, high, 1))
        repeated = code * low
        if high == UNBOUNDED:
            fork = _Instruction(_FORK, other=len(code) + 2)
            return [*repeated, fork, *code, _Instruction(_JUMP, other=-len(code) - 1)]
        for number in range(high - low, 0, -1):
            rest = number * (len(code) + 1)
            repeated = [*repeated, _Instruction(_FORK, other=rest), *code]
        return repeated

    def _bounds(self) -> tuple[int, int] | None:
        """Read how often the last atom is repeated; None: no repeat stands here."""
        sign = self._next()
        known = {"*": (0, UNBOUNDED), "+": (1, UNBOUNDED), "?": (0, 1)}.get(sign)
        if known is not None:
            self._at += 1
            return known
        match = _COUNTS.match(self._text, self._at) if sign == "{" else None
        if match is None:
            return None
        least, comma, most = match.groups()
        if not least and not comma:
            return None  # "{}" is itself
        self._at = match.end()
        low = int(least or 0)
        high = (int(most) if most else UNBOUNDED) if comma else low
        if high != UNBOUNDED and high < low:
            raise self._refused("a repeat whose most is less than its least")
        return low, high

    def _atom(self) -> _Code:
        character = self._next()
        self._at += 1
        if character == "(":
            return self._group()
        if character == "[":
            return [_Instruction(_CHARACTERS, self._class())]
        if character in "*+?":
            raise self._refused("a repeat of nothing")
        if character == "^":
            return [_Instruction(_AT_START)]
        if character == "$":
            return [_Instruction(_AT_END)]
        if character == ".":
            return [_Instruction(_CHARACTERS, _NOT_NEWLINE)]
        if character == "\\":
            if self._next() in ("A", "Z"):
                self._at += 1
                return [_Instruction(_AT_START if self._text[self._at - 1] == "A" else _AT_END)]
            mask, _ = self._escaped()
            return [_Instruction(_CHARACTERS, mask)]
        if character == "{":
            self._at -= 1
            if self._bounds() is not None:
                raise self._refused("a repeat of nothing")
            self._at += 1
        return [_Instruction(_CHARACTERS, self._cased(_bit(character)))]

    def _group(self) -> _Code:
        if self._next() == "?":
            match = _GROUP.match(self._text, self._at)
            if match is None:
                raise self._refused("a kind of group that is not known: (?:…) is, (?i) first")
            self._at = match.end()
        self._depth += 1
        if self._depth > NESTED_MAX:
            raise self._refused(f"more than {NESTED_MAX} groups inside each other")
        code = self._choice()
        self._depth -= 1
        if self._next() != ")":
            raise self._refused("a ( without its )")
        self._at += 1
        return code

    def _class(self) -> int:
        """Read the mask of [...]; its bracket was read."""
        inverted = self._next() == "^"
        if inverted:
            self._at += 1
        mask, first = 0, True
        while first or self._next() != "]":
            first = False
            member_mask, single = self._member()
            if self._next() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                _, last = self._member()
                if single is None or last is None or ord(last) < ord(single):
                    raise self._refused("a range of no two characters in their order")
                for code in range(ord(single), min(ord(last), 127) + 1):
                    member_mask |= 1 << code
            mask |= member_mask
        self._at += 1
        mask = self._cased(mask)
        return ASCII & ~mask if inverted else mask

    def _member(self) -> tuple[int, str | None]:
        """Read one member of a class: its mask, and the character when it is one."""
        character = self._next()
        if not character:
            raise self._refused("a [ without its ]")
        self._at += 1
        if character != "\\":
            return _bit(character), character
        return self._escaped()

    def _escaped(self) -> tuple[int, str | None]:
        """Read what stands after a backslash."""
        character = self._next()
        if character in _CLASSES:
            self._at += 1
            return _CLASSES[character], None
        meant = _CONTROLS.get(character, character)
        if not character or (character.isalnum() and character.isascii() and meant is character):
            raise self._refused("a \\ before what has no meaning with it here")
        self._at += 1
        return self._cased(_bit(meant)), meant

    def _cased(self, mask: int) -> int:
        """Widen a mask to both cases of its letters, if case is not to matter."""
        if not self._any_case:
            return mask
        for upper in range(65, 91):
            pair = 1 << upper | 1 << upper + 32
            if mask & pair:
                mask |= pair
        return mask


def _bit(character: str) -> int:
    """Give a character's bit: what no topic has is in no mask."""
    return 1 << ord(character) if character.isascii() else 0

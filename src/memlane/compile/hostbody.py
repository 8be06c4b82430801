"""Split the body of a host function into parts that can be left out one by one.

The code is not analysed. A part is a whole statement, the condition of an `if`, `for`, `while` or `switch`, a label, or the initial value
of a variable. Each part has a replacement text, so that the rest is still a function and a `const` variable still has a value.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Generator, Iterator, Sequence
from dataclasses import dataclass

from memlane.compile.declarations import PARENTHESISED
from memlane.compile.tokens import Token

_CONDITIONS = {"if": "true", "while": "false", "switch": "0", "for": ";;"}
"""Replacement for the text in the parentheses of each statement."""
ANY_VALUE = "_mlv"
"""Name of the value that converts to every type; `include/containers.h` defines it."""
_STATIC = frozenset({"extern", "thread_local"})
"""Words in front of variables whose initial value must be a constant, which `ANY_VALUE` is not."""
_NOT_TYPES = frozenset({"return", "new", "delete", "throw", "goto", "case", "else", "do", "operator", "co_return", "co_yield"})
_BEFORE_STATEMENT = frozenset({"else", "do", "return"})
_LONGEST_CONFIGURATION = 400
"""Maximum tokens between `<<<` and `>>>`."""


@dataclass(frozen=True, slots=True)
class Part:
    """The characters `start` to `end` (exclusive) of a file, and their replacement."""

    start: int
    end: int
    instead: str = ""


@dataclass(frozen=True, slots=True)
class HostFunction:
    """The definition of a host function."""

    name: str
    """The word in front of the parameters; empty for an operator."""
    head_end: int
    """End of the head: the position of the body's `{`, or of the `:` of member initialisers."""
    body: Part
    """The braces and the text between them, with `;` as replacement."""


class Body:
    """The tokens of one declaration, without directives, and methods that find parts in them."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.ends = _group_ends(tokens)

    def text(self, index: int) -> str:
        """Return the text of a token; empty past either end."""
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def end(self, index: int) -> int:
        """Return the index past the bracketed group that begins at `index`, or past the single token there."""
        return self.ends.get(index, index + 1)

    def part(self, first: int, end: int, instead: str = "") -> Part:
        """Return the part from token `first` to token `end` (exclusive)."""
        return Part(self.tokens[first].start, self.tokens[min(end, len(self.tokens)) - 1].end, instead)

    def function(self) -> HostFunction | None:
        """Return the function that the declaration defines; None if it defines none."""
        name, initialisers = None, 0
        index = self._behind_template()
        while index < len(self.tokens):
            text = self.text(index)
            if text == "{" and name is not None and (not initialisers or self.text(index - 1) in (")", "}")):
                head_end = self.tokens[initialisers or index - (self.text(index - 1) == "try")].start
                return HostFunction(name, head_end, self.part(index, self.end(index), ";"))
            if text == ";" or (text == "=" and self.text(index - 1) != "operator"):
                return None
            if text == ":" and name is not None and not initialisers:
                initialisers = index
            if text == "(" and name is None and index and self.text(index - 1) not in PARENTHESISED:
                before = self.tokens[index - 1]
                name = before.text if before.kind == "word" and before.text != "operator" else ""
            index = self.end(index)
        return None

    def _behind_template(self) -> int:
        """Return the index of the first token past all leading `template < ... >`."""
        index = 0
        while self.text(index) == "template" and self.text(index + 1) == "<":
            depth, index = 0, index + 1
            while index < len(self.tokens):
                depth += (self.text(index) == "<") - (self.text(index) == ">")
                index = self.end(index)
                if depth == 0:
                    break
        return index

    def statements(self) -> Iterator[Part]:
        """Yield the parts of each statement that can be left out."""
        index = 0
        while index < len(self.tokens):
            text = self.text(index)
            if text in ("{", "}", ";", "else", "do", "try"):
                index += 1
            elif text in _CONDITIONS:
                opening = index + 1 + (self.text(index + 1) == "constexpr")
                if self.text(opening) == "(":
                    yield Part(self.tokens[opening].end, self.tokens[self.end(opening) - 1].start, _CONDITIONS[text])
                index = self.end(opening)
            elif text in ("case", "default"):
                end = next((at for at in range(index, len(self.tokens)) if self.text(at) in (":", ";")), len(self.tokens) - 1)
                yield self.part(index, end + 1)
                index = end + 1
            else:
                index = yield from self._statement(index)

    def _statement(self, first: int) -> Generator[Part, None, int]:
        """Yield a statement up to its `;` and, as a separate part, its first variable's initial value; return the index past it."""
        index, value, last = first, None, first
        while self.text(index) not in (";", "}", ""):
            if self.text(index) == "=" and value is None and index > first and self.tokens[index - 1].kind == "word":
                value = index
            last, index = index, self.end(index)
        if value is None and self._constructs(first, last):
            value = last
        if self.text(index) == ";":
            if value is not None:
                yield self.part(value, index, "" if self.text(first) in _STATIC else f"={ANY_VALUE}")
            index += 1
        index = max(index, first + 1)
        yield self.part(first, index, ";")
        return index

    def _constructs(self, first: int, opening: int) -> bool:
        """Return whether the bracket at `opening` holds a variable's constructor arguments: `Type name(...)` from `first` on."""
        if self.text(opening) not in ("(", "{") or opening < first + 2 or self.tokens[opening - 1].kind != "word":
            return False
        kind = self.tokens[opening - 2]
        return kind.text in (">", "*", "&") or (kind.kind == "word" and kind.text not in _NOT_TYPES)

    def names_of_calls(self, words: Collection[str]) -> Iterator[Part]:
        """Yield the name of each call that is a statement and has one of `words` among its arguments.

        The call may be a macro (`TIMED("sort", sort(keys), &seconds);`). Without its name, its arguments remain, separated by commas.
        """
        for index, token in enumerate(self.tokens):
            if token.kind == "word" and self.text(index + 1) == "(" and self.text(index - 1) in ("", ";", "{", "}", ")", "else", "do"):
                end = self.end(index + 1)
                is_statement = self.text(end) == ";" and token.text not in _CONDITIONS
                if is_statement and any(one.text in words for one in self.tokens[index + 1 : end]):
                    yield self.part(index, index + 1)

    def static_words(self) -> Iterator[Part]:
        """Yield the `static` of each local variable, whose initial value would have to be a constant in device code."""
        for index, token in enumerate(self.tokens):
            if token.text == "static" and self.text(index - 1) in (";", "{", "}"):
                yield self.part(index, index + 1)

    def exception_handling(self) -> Iterator[Part]:
        """Yield each `try` and each `catch (...) { ... }`; device code has no exceptions."""
        for index, token in enumerate(self.tokens):
            if token.text == "try":
                yield self.part(index, index + 1)
            elif token.text == "catch":
                yield self.part(index, self.end(self.end(index + 1)))

    def launches_other_than(self, kernels: Container[str]) -> bool:
        """Return whether a launch names something other than one of `kernels`: a parameter or variable of the function."""
        before = [self.tokens[index - 1] for index, token in enumerate(self.tokens) if token.text == "<<<" and index]
        return any(token.text in (")", "]") or (token.kind == "word" and token.text not in kernels) for token in before)

    def launch_configurations(self) -> Iterator[Part]:
        """Yield each `<<<grid, block>>>`. Without it, a launch becomes a call of the same instantiation of the kernel.

        The call goes into a branch that is not taken, because the compiler cannot generate it for a class with a copy constructor.
        """
        for index, token in enumerate(self.tokens):
            at = index + 1 if token.text == "<<<" else len(self.tokens)
            while at < min(len(self.tokens), index + _LONGEST_CONFIGURATION) and self.text(at) not in (";", "}", "<<<"):
                if self.text(at) == self.text(at + 1) == self.text(at + 2) == ">" and self.text(at + 3) == "(":
                    yield self.part(index, at + 3)
                    start, end = self._kernel_expression(index), self.end(at + 3)
                    if start is not None and self.text(end) == ";":
                        yield Part(self.tokens[start].start, self.tokens[start].start, "0?")
                        yield Part(self.tokens[end].start, self.tokens[end].start, ":void()")
                    break
                at = self.end(at)

    def _kernel_expression(self, end: int) -> int | None:
        """Return the index where the statement begins that is a name, with or without template arguments, up to `end`; None for others."""
        openings = {closing - 1: opening for opening, closing in self.ends.items()}
        index, depth = end, 0
        while index > 0:
            text = self.text(index - 1)
            if depth and index - 1 in openings:
                index = openings[index - 1]
                continue
            depth += (text == ">") - (text == "<")
            outside = not depth and text != "<"
            if depth < 0 or (outside and text != "::" and self.tokens[index - 1].kind != "word") or (outside and text in _BEFORE_STATEMENT):
                break
            index -= 1
        return index if index < end and (index == 0 or self.text(index - 1) in (";", "{", "}", ")", "else", "do", ":")) else None


def _group_ends(tokens: Sequence[Token]) -> dict[int, int]:
    """Return a map from the index of each opening bracket to the index past its closing bracket."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.text in ("(", "[", "{"):
            opened.append(index)
        elif token.text in (")", "]", "}") and opened:
            ends[opened.pop()] = index + 1
    return ends | dict.fromkeys(opened, len(tokens))

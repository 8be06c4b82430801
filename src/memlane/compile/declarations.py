"""Split a C++ file into declarations, and classify each as device code, host code, or either.

This is not a C++ parser. It finds where a declaration at namespace or class scope begins and ends, and which of a few shapes it has
(function, variable, class, other). It does not look inside functions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from memlane.compile.macros import Macros
from memlane.compile.tokens import Token, directive, tokenize

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_CLASS_WORDS = frozenset({"class", "struct", "union"})
_PLAIN_WORDS = frozenset({"namespace", "using", "typedef", "static_assert", "asm", "enum", "concept"})
_ACCESS_WORDS = frozenset({"public", "private", "protected"})
_CONSTANT_WORDS = frozenset({"constexpr", "consteval", "constinit"})
PARENTHESISED = frozenset(
    {"__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__", "__align__", "__attribute__", "__declspec"}
    | {"alignas", "alignof", "sizeof", "decltype", "noexcept", "explicit", "requires"}
)
"""Words whose parentheses are not a parameter list."""
_DEEPEST_CLASS = 50
"""Depth of nested classes up to which members are separate declarations; deeper ones belong to the enclosing class."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A declaration: the characters `start` to `end` (exclusive) of the file."""

    start: int
    end: int
    side: str
    """`device` if it is marked for the device, `host` if the device cannot use it, `either` for types, constants and the like."""


def tokens_inside(tokens: list[Token], unit: Unit) -> list[Token]:
    """Return the tokens of a file that begin inside a declaration."""
    first = bisect_left(tokens, unit.start, key=lambda token: token.start)
    return tokens[first : bisect_left(tokens, unit.end, key=lambda token: token.start)]


def units_of(tokens: list[Token], macros: Macros) -> list[Unit]:
    """Return the declarations of a file in order; the members of a class precede the class."""
    return list(_Scanner(_structural(tokens), macros).scope(in_class=False))


def _structural(tokens: list[Token]) -> list[Token]:
    """Return the tokens that define the file's structure.

    Directives and code behind `#if 0` are left out. If the first branch of a conditional opens braces that it does not close, the other
    branches are left out too, because they open the same braces.
    """
    kept: list[Token] = []
    stack: list[_Conditional] = []
    for token in tokens:
        name = directive(token).name if token.kind == "directive" else ""
        if name in ("if", "ifdef", "ifndef"):
            outer = bool(stack) and stack[-1].hidden
            off = outer or (name == "if" and directive(token).body == "0")
            stack.append(_Conditional(outer, off))
        elif name in ("else", "elif", "elifdef", "elifndef") and stack:
            stack[-1].next_branch()
        elif name == "endif" and stack:
            inner = stack.pop()
            if stack:
                stack[-1].balance += inner.balance
        elif token.kind != "directive" and not (stack and stack[-1].hidden):
            kept.append(token)
            if stack:
                stack[-1].balance += (token.text == "{") - (token.text == "}")
    return kept


@dataclass(slots=True)
class _Conditional:
    """An `#if` whose branches are being read. `hidden` is True if the tokens of the current branch are left out."""

    outer_hidden: bool
    hidden: bool
    balance: int = 0

    def next_branch(self) -> None:
        self.hidden = self.outer_hidden or self.balance != 0


@dataclass(slots=True)
class _Shape:
    """Properties of a declaration found so far in its head."""

    marked: bool = False
    constant: bool = False
    parameters: bool = False
    class_word: bool = False
    plain: bool = False
    kept_function: bool = False
    pointer: bool = False
    enumeration: bool = False
    expansion: str = ""
    """The side of the macro whose expansion is the whole declaration."""


class _Scanner:
    """Scanner that walks over the structural tokens. Past the end, `peek` returns an empty token."""

    def __init__(self, tokens: list[Token], macros: Macros) -> None:
        end = tokens[-1].end if tokens else 0
        self.tokens = tokens
        self.macros = macros
        self.at = 0
        self.depth = 0
        """Number of classes around the current declaration."""
        self.sides: dict[str, str] = {}
        """Side of each macro that expands to declarations, by its text."""
        self.end_token = Token("end", "", end, end)

    def peek(self, ahead: int = 0) -> Token:
        index = self.at + ahead
        return self.tokens[index] if index < len(self.tokens) else self.end_token

    @property
    def done(self) -> bool:
        return self.at >= len(self.tokens)

    def scope(self, in_class: bool) -> Iterator[Unit]:
        """Yield the declarations up to the closing brace of this scope, which is consumed, or to the end of the file."""
        while not self.done:
            token = self.peek()
            if token.text == "}":
                self.at += 1
                if in_class:
                    return
            elif token.text == ";":
                self.at += 1
            elif token.text in self.macros.braces and not in_class:
                self.at += 1
                if self.peek().text == "(":
                    self.skip_group()
            elif in_class and token.text in _ACCESS_WORDS and self.peek(1).text == ":":
                self.at += 2
            elif self._opens_scope():
                continue
            else:
                yield from self.declaration(in_class)

    def _opens_scope(self) -> bool:
        """Step over `namespace a::b {`, `inline namespace c {` or `extern "C" {`; return whether one was there."""
        ahead = 1 if self.peek().text == "inline" else 0
        if self.peek(ahead).text == "namespace":
            while self.peek(ahead).text not in ("{", ";", "=", ""):
                ahead += 1
        elif self.peek().text == "extern" and self.peek(1).kind == "string":
            ahead = 2
        else:
            return False
        if self.peek(ahead).text != "{":
            return False
        self.at += ahead + 1
        return True

    def declaration(self, in_class: bool) -> Iterator[Unit]:
        """Yield one declaration, preceded by all members of the class that it may define."""
        first = self.at
        start = self.peek().start
        shape = _Shape()
        yield from self._walk(shape)
        if self.at == first:
            self.at += 1
        yield Unit(start, self.tokens[min(self.at, len(self.tokens)) - 1].end, _side(shape, in_class))

    def _walk(self, shape: _Shape) -> Iterator[Unit]:
        """Read one declaration up to its `;` or the `}` of its body; yield the members of a class."""
        while not self.done:
            token = self.peek()
            if token.text == ";":
                self.at += 1
                return
            if token.text == "}":
                return
            if token.text == "{":
                if shape.class_word and not shape.parameters and self.depth < _DEEPEST_CLASS:
                    self.at += 1
                    self.depth += 1
                    yield from self.scope(in_class=True)
                    self.depth -= 1
                    continue
                self.skip_group()
                if shape.parameters and not shape.plain:
                    self._skip_handlers()
                    return
            elif self.peek(1).text == "(" and token.text in self.macros.declarations and not shape.parameters:
                shape.expansion = self.side_of_expansion(self.macros.declarations[token.text])
                self.at += 1
                self.skip_group()
                self.skip_if(";")
                return
            else:
                self._head_token(token, shape)

    def _head_token(self, token: Token, shape: _Shape) -> None:
        """Read one token or group in the head of a declaration, and update `shape`."""
        text = token.text
        if text in ("(", "["):
            shape.pointer |= text == "(" and self.peek(1).text in ("*", "&") and not shape.parameters
            shape.parameters |= text == "(" and not shape.pointer and not self._is_attribute()
            self.skip_group()
            return
        self.at += 1
        if text == "template" and self.peek().text == "<":
            self.skip_angles()
        elif text == "operator":
            self._skip_operator()
        elif text == "=":
            self._initialiser(shape)
        elif text == ":" and shape.parameters and not shape.plain:
            self._skip_member_initialisers()
        elif text in ("*", "&"):
            shape.constant = False
        elif token.kind == "word":
            self._word(text, shape)

    def _is_attribute(self) -> bool:
        """Return whether the parentheses at this place belong to an attribute, or to a macro for one (`struct ALIGNED(16) Pair {`)."""
        before = [token.text for token in self.tokens[max(self.at - 2, 0) : self.at]]
        return bool(before) and (before[-1] in PARENTHESISED or before[0] in _CLASS_WORDS)

    def _word(self, word: str, shape: _Shape) -> None:
        shape.marked |= self.macros.marks_device(word)
        if word in _CONSTANT_WORDS:
            shape.constant = shape.kept_function = True
        elif word in ("const", "__const", "__const__"):
            shape.constant = True
        elif word in _CLASS_WORDS:
            shape.class_word = not shape.enumeration
        elif word in _PLAIN_WORDS:
            shape.plain = True
            shape.enumeration |= word == "enum"

    def _initialiser(self, shape: _Shape) -> None:
        """Read what follows `=`: `default`, `delete` or `0` of a function, or the value of a variable up to its `;`."""
        if shape.parameters and self.peek().text in ("default", "delete", "0"):
            shape.kept_function = True
            return
        while not self.done and self.peek().text not in (";", "}"):
            self.skip_group()

    def _skip_operator(self) -> None:
        """Skip the symbol or type that follows `operator`, up to the parameter list."""
        if self.peek().text == "(" and self.peek(1).text == ")":
            self.at += 2
        while not self.done and self.peek().text not in ("(", ";", "{"):
            if self.peek().text == "[":
                self.skip_group()
            else:
                self.at += 1

    def _skip_member_initialisers(self) -> None:
        """Skip the initialisers that follow the `:` of a constructor, `a(1), b{2}, base<T>(x)...`, up to the brace of the body."""
        while not self.done:
            while self.peek().text not in ("(", "{", ";", ""):
                if self.peek().text == "<":
                    self.skip_angles()
                else:
                    self.at += 1
            if self.peek().text in ("(", "{"):
                self.skip_group()
            self.skip_if(".", ".", ".")
            if not self.skip_if(","):
                return

    def _skip_handlers(self) -> None:
        """Skip the `catch (...) { }` clauses of a function whose body is a try block."""
        while self.skip_if("catch"):
            self.skip_group()
            self.skip_group()

    def side_of_expansion(self, text: str) -> str:
        """Return the side of a macro's expansion: `device` if any part of it is for the device."""
        if text not in self.sides:
            inner = replace(self.macros, declarations={})
            sides = {unit.side for unit in units_of(tokenize(text), inner)}
            self.sides[text] = "device" if "device" in sides else "host" if sides == {"host"} else "either"
        return self.sides[text]

    def skip_if(self, *texts: str) -> bool:
        """Step over the given tokens if they come next; return whether they did."""
        if all(self.peek(ahead).text == text for ahead, text in enumerate(texts)):
            self.at += len(texts)
            return True
        return False

    def skip_group(self) -> None:
        """Step over a bracketed group, including nested groups, or over one token."""
        expected: list[str] = []
        missing = Counter[str]()
        while not self.done:
            text = self.peek().text
            if text in _CLOSING:
                expected.append(_CLOSING[text])
                missing[_CLOSING[text]] += 1
            elif missing[text]:
                while (closing := expected.pop()) != text:
                    missing[closing] -= 1
                missing[text] -= 1
            self.at += 1
            if not expected:
                return

    def skip_angles(self) -> None:
        """Step over `< ... >`. A comparison with `>` inside it must be in parentheses, as C++ requires."""
        depth = 0
        while not self.done and self.peek().text not in (";", "{"):
            text = self.peek().text
            if text in ("(", "["):
                self.skip_group()
                continue
            depth += (text == "<") - (text == ">")
            self.at += 1
            if depth == 0:
                return


def _side(shape: _Shape, in_class: bool) -> str:
    if shape.marked:
        return "device"
    if shape.expansion:
        return shape.expansion
    if shape.plain or (shape.class_word and not shape.parameters) or shape.kept_function:
        return "either"
    if shape.parameters:
        return "host"
    return "either" if in_class or shape.constant else "host"

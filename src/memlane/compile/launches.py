"""Find the template kernels that a program launches, from the launches written in its host code.

A host compiler instantiates `block_sum<float, BLOCK>` when it meets `block_sum<float, BLOCK><<<grid, BLOCK>>>(...)`. Here the expression in
front of `<<<` is passed to the device compiler, with the constants of the enclosing function substituted.
"""

from __future__ import annotations

from memlane.compile.declarations import PARENTHESISED
from memlane.compile.hostbody import Body
from memlane.compile.tokens import Token

_LONGEST_EXPRESSION = 500
"""Maximum words of a template kernel with its arguments; longer ones are not instantiated."""


def launches_in(text: str, tokens: list[Token]) -> list[str]:
    """Return the template kernels that a host function launches, except those whose arguments depend on its own template parameters."""
    tokens = [token for token in tokens if token.kind != "directive"]
    parameters = _template_parameters(tokens)
    constants = _constants(text, tokens)
    found = []
    for index, token in enumerate(tokens):
        if token.text != "<<<" or index < 2 or tokens[index - 1].text != ">":
            continue
        first = _start_of_name(tokens, index - 1)
        if first is not None:
            expression = _substituted(text, tokens[first:index], constants)
            if len(expression) <= _LONGEST_EXPRESSION and not parameters & set(expression):
                found.append(" ".join("".join(expression).split()))
    return found


def template_kernel(tokens: list[Token]) -> str | None:
    """Return the name of the kernel if this declaration is a kernel template; None otherwise."""
    texts = [token.text for token in tokens if token.kind != "directive"]
    if texts[:2] != ["template", "<"] or texts[2:3] == [">"] or "__global__" not in texts:
        return None
    body = Body([token for token in tokens if token.kind != "directive"])
    index, name = len(_up_to_template_end(tokens)), None
    while index < len(body.tokens) and body.text(index) not in ("{", ";"):
        before = body.tokens[index - 1]
        if body.text(index) == "(" and before.kind == "word" and before.text not in PARENTHESISED:
            name = before.text
        index = body.end(index)
    return name


def _up_to_template_end(tokens: list[Token]) -> list[Token]:
    """Return the tokens of a leading `template < ... >`; empty if there is none."""
    if not tokens or tokens[0].text != "template":
        return []
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token.text == "<") - (token.text == ">")
        if index and depth <= 0:
            return tokens[: index + 1]
    return tokens


def _template_parameters(tokens: list[Token]) -> set[str]:
    """Return the names of the parameters in `template <typename T, int N = 3>` in front of a function."""
    head = _up_to_template_end(tokens)
    return {
        token.text
        for before, token, after in zip(head, head[1:], head[2:], strict=False)
        if token.kind == "word" and after.text in (",", ">", "=") and before.text != "="
    }


def _start_of_name(tokens: list[Token], last: int) -> int | None:
    """Return the index of the first token of `a::b<c, d<e>>`, whose closing `>` is at `last`; None if no name is found."""
    depth = 0
    for index in range(last, max(-1, last - _LONGEST_EXPRESSION), -1):
        depth += (tokens[index].text == ">") - (tokens[index].text == "<")
        if depth == 0:
            break
    first = index - 1
    if depth or first < 0 or tokens[first].kind != "word":
        return None
    while first >= 2 and tokens[first - 1].text == "::" and tokens[first - 2].kind == "word":
        first -= 2
    return first


def _constants(text: str, tokens: list[Token]) -> dict[str, list[Token]]:
    """Return the value of each constant that a function defines exactly once, by name, from `const int n = 4, m = n + 1;`."""
    values: dict[str, list[Token]] = {}
    ambiguous: set[str] = set()
    constant, name = False, ""
    value: list[Token] | None = None
    depth = 0
    for token in tokens:
        if value is not None:
            depth += (token.text in "([{") - (token.text in ")]}")
            if depth == 0 and token.text in (",", ";"):
                if values.setdefault(name, value) is not value:
                    ambiguous.add(name)
                value = None
                constant &= token.text == ","
            else:
                value.append(token)
        elif token.text in (";", "{", "}", "(", ")"):
            constant = False
        elif token.text in ("const", "constexpr"):
            constant = True
        elif token.text == "=" and constant:
            value, depth = [], 0
        elif token.kind == "word":
            name = token.text
    return {name: value for name, value in values.items() if name not in ambiguous}


def _substituted(text: str, tokens: list[Token], constants: dict[str, list[Token]], level: int = 0) -> list[str]:
    """Return the words of an expression, with its white space, and with constants replaced by their values.

    Nested constants may expand to more than memory holds. Expansion therefore stops once the result exceeds `_LONGEST_EXPRESSION` words.
    """
    words: list[str] = []
    for index, token in enumerate(tokens):
        if len(words) > _LONGEST_EXPRESSION:
            break
        value = constants.get(token.text) if level < 8 else None
        if value is not None and not (index and tokens[index - 1].text == "::"):
            inner = _substituted(text, value, constants, level + 1)
            words += inner if len(value) == 1 else ["(", *inner, ")"]
        else:
            words.append(token.text)
        if index + 1 < len(tokens) and tokens[index + 1].start > token.end:
            words.append(" ")
    return words

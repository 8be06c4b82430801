"""Recompile a program with longer rows of an array in shared memory, as padding in the source would.

    __shared__ float tile[T][T + 1], other[T];       ->       __shared__ float tile[T][(T + 1) + 3], other[T];

Extents keep their text, so that macros, constants and template parameters keep their meaning; their values follow from the size that the
compiler gives the array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memlane.compile.module import Recipe, recompiled
from memlane.compile.tokens import Token, tokenize
from memlane.errors import CompileError, MemlaneError
from memlane.ptx import Module, Variable
from memlane.titles import plain_name

_SHARED = ("__shared__",)


@dataclass(frozen=True)
class DeclaredArray:
    """The declaration of an array of two or more dimensions in shared memory."""

    module: Module
    function: str
    """PTX name of the function that declares the array; empty for a module-scope array."""
    variable: str
    """PTX name of the array."""
    rows: int
    columns: int
    """Elements in a row, counted in the declared type."""
    element_bytes: int
    line: int
    extents: tuple[str, ...]
    """The extents as the source writes them."""
    place: tuple[int, int]
    """Start and end (exclusive) of the last extent in the main file's text."""

    def padded(self, pad: int) -> Module:
        """Return the module compiled with rows that are `pad` elements longer. Raises what `cuda` raises."""
        changed = recompiled(self.module, _with_pad(self.module, self.place, pad))
        if _variable(changed, self.function, self.variable) is None:
            raise CompileError(f"{self.variable} is not there any more when its rows are longer")
        return changed

    def declaration(self, name: str, pad: int) -> str:
        """Return the declarator of the array with longer rows, for example `tile[T][T + 1]`."""
        last = self.extents[-1]
        wrapped = last if last.replace("_", "").isalnum() else f"({last})"
        return f"{name}{''.join(f'[{one}]' for one in self.extents[:-1])}[{wrapped} + {pad}]"


def declared_array(module: Module, function: str, variable: str, title: str) -> DeclaredArray | None:
    """Return the declaration of an array in shared memory, with the extents that the compiler computes; None if there is none.

    `function` and `variable` are PTX names; `title` is the array's name as shown to users, for example `f<2>::tile`. Returns None for a
    module that was not compiled here, and for an array of one dimension, with explicit alignment, or declared in a header.
    """
    before = _variable(module, function, variable)
    if before is None or not isinstance(module.recipe, Recipe):
        return None
    text = module.sources.get(module.name, "")
    whose, _, name = title.rpartition("::")
    found = declarations(tokenize(text), plain_name(whose).rpartition("::")[2], name)
    for groups in found:
        last = groups[-1]
        place = last[0].end, last[-1].start
        try:
            after = _variable(recompiled(module, _with_pad(module, place, 1)), function, variable)
        except MemlaneError:
            continue
        more = 0 if after is None else after.nbytes - before.nbytes
        if more > 0 and before.nbytes % more == 0 and more % before.alignment == 0:
            extents = tuple(text[group[0].end : group[-1].start].strip() for group in groups)
            columns, line = before.nbytes // more, text.count("\n", 0, place[0]) + 1
            return DeclaredArray(module, function, variable, more // before.alignment, columns, before.alignment, line, extents, place)
    return None


def _with_pad(module: Module, place: tuple[int, int], pad: int) -> str:
    text = module.sources[module.name]
    return f"{text[: place[0]]}({text[place[0] : place[1]]}) + {pad}{text[place[1] :]}"


def _variable(module: Module, function: str, name: str) -> Variable | None:
    if not function:
        return module.variables.get(name)
    owner = module.functions.get(function)
    return None if owner is None else next((one for one in owner.walk() if isinstance(one, Variable) and one.name == name), None)


def declarations(tokens: Sequence[Token], function: str, name: str) -> Iterator[list[list[Token]]]:
    """Yield the bracket groups of each shared-memory declarator of `name` with rows, the nearest behind a mention of the function first.

    Yields none if the nearest one has a single dimension: the function's own array has no rows, whatever an array of that name has
    elsewhere.
    """
    mentioned = [place for place, token in enumerate(tokens) if token.text == function]
    found: list[tuple[bool, int, list[list[Token]]]] = []
    for start, token in enumerate(tokens):
        if token.text not in _SHARED:
            continue
        end = next((place for place in range(start, len(tokens)) if tokens[place].text == ";"), len(tokens))
        statement = tokens[start:end]
        if any(one.text in ("__align__", "alignas") for one in statement):
            continue
        for place, one in enumerate(statement):
            groups = _groups(statement, place + 1) if one.text == name else []
            if groups:
                behind = [at for at in mentioned if at < start]
                found.append((not behind, start - max(behind, default=0), groups))
    nearest = [groups for _, _, groups in sorted(found, key=lambda one: one[:2])]
    if nearest and len(nearest[0]) >= 2:
        yield from (groups for groups in nearest if len(groups) >= 2)


def _groups(tokens: Sequence[Token], place: int) -> list[list[Token]]:
    """Return the consecutive bracket groups that begin at `place`, each with its brackets."""
    found: list[list[Token]] = []
    while place < len(tokens) and tokens[place].text == "[":
        depth, end = 0, place
        while end < len(tokens):
            depth += (tokens[end].text == "[") - (tokens[end].text == "]")
            end += 1
            if not depth:
                break
        if depth:
            return []
        found.append(list(tokens[place:end]))
        place = end
    return found

"""The arrays in shared memory of a module, and which of them a name means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from memlane.errors import RelayoutError
from memlane.ptx import Address, Function, Module, Symbol, Variable, called_functions, demangle, names_in

DYNAMIC = "dynamic"
"""How the dynamic part of shared memory is called, whatever names its declarations have: all of them begin at one place."""

_RANGE = re.compile(r"\s*dynamic\s*(?:\[\s*(\d+)\s*:\s*(\d+)\s*\])?\s*")


@dataclass(frozen=True)
class SharedArray:
    """A variable in shared memory, or a range of bytes of its dynamic part."""

    function: str
    """The PTX name of the function that declares it; empty for one of the module, and for the dynamic part."""
    names: tuple[str, ...]
    """Its PTX name; of the dynamic part all that lead there."""
    title: str
    """To show to a person: `tiled(float*, float const*, int)::tile`."""
    nbytes: int
    """0 where only the launch knows."""
    align: int
    first: int = 0
    """Where the range begins, in bytes of the dynamic part."""

    @property
    def is_dynamic(self) -> bool:
        return self.title.startswith(DYNAMIC)

    def same_memory(self, other: SharedArray) -> bool:
        """Whether an address in one is counted from where the other begins."""
        return (self.function, self.names) == (other.function, other.names)


def shared_arrays(module: Module, kernel: Function | None = None) -> tuple[SharedArray, ...]:
    """All of a module, or those that a kernel and the functions it calls use; the dynamic part comes last."""
    functions = tuple(module.functions.values()) if kernel is None else (kernel, *called_functions(module, kernel))
    used = {name for function in functions for name in _names(function)}
    found = [_of(one, "") for one in module.variables.values() if _is_static(one) and one.name in used]
    for function in functions:
        found += [_of(one, function.name) for one in _declared(function) if _is_static(one)]
    dynamic = [one for one in _extern(module, functions) if one.name in used]
    if dynamic:
        found.append(SharedArray("", tuple(one.name for one in dynamic), DYNAMIC, 0, max(one.alignment for one in dynamic)))
    return tuple(found)


def find_array(module: Module, wanted: str | tuple[int, int] | None, kernel: Function | None = None) -> SharedArray:
    """The array that `wanted` means: a name as in PTX or as the programmer wrote it (`tile`, `tiled::tile`), `dynamic[0:4096]` or (0, 4096)
    for bytes of the dynamic part, None for the only one there is. RelayoutError with those there are otherwise."""
    arrays = shared_arrays(module, kernel)
    whose = module.name if kernel is None else kernel.title
    listed = ", ".join(one.title for one in arrays)
    if not arrays:
        raise RelayoutError(f"{whose} has no array in shared memory")
    if wanted is None:
        if len(arrays) > 1:
            raise RelayoutError(f"{whose} has several arrays in shared memory: {listed}; name one with shared=")
        return arrays[0]
    bounds = _bounds(wanted)
    if bounds is not None:
        dynamic = next((one for one in arrays if one.is_dynamic), None)
        if dynamic is None:
            raise RelayoutError(f"{whose} has no dynamic shared memory; it has: {listed}")
        return _range_of(dynamic, *bounds)
    assert isinstance(wanted, str)
    matches = [one for one in arrays if wanted in one.names or wanted == one.title] or [one for one in arrays if _answers(one, wanted)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise RelayoutError(f"several arrays of {whose} match {wanted!r}: {', '.join(one.title for one in matches)}; use the full name")
    raise RelayoutError(f"no shared array {wanted!r} in {whose}; it has: {listed}")


def static_bytes(module: Module, kernel: Function) -> int:
    """Static shared memory of a kernel: its own, that of the functions it calls, and what they use of the module's."""
    total = 0
    for one in sorted(shared_arrays(module, kernel), key=lambda one: -one.align):
        if not one.is_dynamic:
            total = -(-total // one.align) * one.align + one.nbytes
    return total


def _bounds(wanted: str | tuple[int, int]) -> tuple[int, int] | None:
    if isinstance(wanted, str):
        match = _RANGE.fullmatch(wanted)
        if match is None:
            return None
        return (int(match[1]), int(match[2])) if match[1] else (0, 0)
    if len(wanted) != 2 or not all(isinstance(end, int) for end in wanted):
        raise RelayoutError(f"a range of dynamic shared memory needs two byte offsets, got {wanted!r}")
    if wanted[1] <= wanted[0]:
        raise RelayoutError(f"the range {wanted[0]}..{wanted[1]} of dynamic shared memory is empty")
    return wanted


def _range_of(dynamic: SharedArray, first: int, last: int) -> SharedArray:
    if last < first or first < 0 or (last == first and first):
        raise RelayoutError(f"the range {first}..{last} of dynamic shared memory is empty")
    title = f"{DYNAMIC}[{first}:{last}]" if last else DYNAMIC
    return SharedArray("", dynamic.names, title, last - first, dynamic.align, first)


def _answers(array: SharedArray, wanted: str) -> bool:
    """Whether the last parts of the name, parameters left out, are those that were asked for."""
    parts, asked = _without_brackets(array.title).split("::"), _without_brackets(wanted).split("::")
    return parts[-len(asked) :] == asked


def _without_brackets(title: str) -> str:
    """`void ns::red<256>(int*)::sums` -> `ns::red::sums`."""
    depth, kept = 0, []
    for character in title:
        if character in "<([{":
            depth += 1
        elif character in ">)]}":
            depth -= 1
        elif depth == 0:
            kept.append(character)
    return "".join(kept).strip().rpartition(" ")[2]


def _of(variable: Variable, function: str) -> SharedArray:
    return SharedArray(function, (variable.name,), demangle(variable.name), variable.nbytes, variable.alignment)


def _is_static(variable: Variable) -> bool:
    return variable.space.partition("::")[0] == "shared" and variable.nbytes > 0


def _extern(module: Module, functions: tuple[Function, ...]) -> Iterator[Variable]:
    """Every declaration that leads to the dynamic part."""
    for one in (*module.variables.values(), *(one for function in functions for one in _declared(function))):
        if one.space.partition("::")[0] == "shared" and not one.nbytes:
            yield one


def _declared(function: Function) -> Iterator[Variable]:
    assert function.body is not None
    return (one for one in function.body.walk() if isinstance(one, Variable))


def _names(function: Function) -> Iterator[str]:
    """The symbols that its instructions name."""
    for instruction in function.instructions():
        for operand in instruction.operands:
            if isinstance(operand, Symbol) or (isinstance(operand, Address) and isinstance(operand.base, Symbol)):
                yield from names_in(operand)

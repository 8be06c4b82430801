"""List the arrays in shared memory of a module, and select one by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from memlane.errors import RelayoutError
from memlane.ptx import Address, Function, Label, Module, RegisterDecl, Symbol, Variable, called_functions, demangle, names_in
from memlane.ptx.operands import register_number

DYNAMIC = "dynamic"
"""Name of the dynamic part of shared memory. All its declarations begin at the same address, whatever their names."""

_RANGE = re.compile(r"\s*dynamic\s*(?:\[\s*(\d+)\s*:\s*(\d+)\s*\])?\s*")


@dataclass(frozen=True)
class SharedArray:
    """Variable in shared memory, or range of bytes of its dynamic part."""

    function: str
    """PTX name of the function that declares it; empty for a module-scope variable and for the dynamic part."""
    names: tuple[str, ...]
    """Its PTX name; for the dynamic part all names that lead to it."""
    title: str
    """Readable name: `tiled(float*, float const*, int)::tile`."""
    nbytes: int
    """Size in bytes; 0 if only the launch determines it."""
    align: int
    first: int = 0
    """Start of the range, in bytes of the dynamic part."""

    @property
    def is_dynamic(self) -> bool:
        """Whether it is the dynamic part or a range of it."""
        return self.title.startswith(DYNAMIC)

    def same_memory(self, other: SharedArray) -> bool:
        """Return whether offsets in both arrays are relative to the same address."""
        return (self.function, self.names) == (other.function, other.names)


def shared_arrays(module: Module, kernel: Function | None = None) -> tuple[SharedArray, ...]:
    """Return the arrays of a module, or those that a kernel and the functions it calls use; the dynamic part comes last."""
    functions = tuple(module.functions.values()) if kernel is None else (kernel, *called_functions(module, kernel))
    used = {name for function in functions for name in _names(function)}
    found = [_shared_array(one, "") for one in module.variables.values() if _is_static(one) and one.name in used]
    for function in functions:
        found += [_shared_array(one, function.name) for one in _declared_variables(function) if _is_static(one)]
    dynamic = [one for one in _extern(module, functions) if one.name in used]
    if dynamic:
        found.append(SharedArray("", tuple(one.name for one in dynamic), DYNAMIC, 0, max(one.alignment for one in dynamic)))
    return tuple(found)


def find_array(module: Module, wanted: str | tuple[int, int] | None, kernel: Function | None = None) -> SharedArray:
    """Return the array that `wanted` selects: a name as in PTX or in the source (`tile`, `tiled::tile`), `dynamic[0:4096]` or (0, 4096) for
    bytes of the dynamic part, or None for the only array. Raises RelayoutError, with the available arrays, if there is no unique match."""
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


def hiding_declaration(function: Function, array: SharedArray) -> Variable | RegisterDecl | Label | None:
    """Return the first declaration in a function, in whatever block, by which a name of the array leads to something else; None if there is
    none."""
    for one in (*function.params, *function.results, *function.walk()):
        if not isinstance(one, Variable | RegisterDecl | Label):
            continue
        count = one.count if isinstance(one, RegisterDecl) else None
        if one.name not in array.names and all(register_number(name, one.name, count) is None for name in array.names):
            continue
        if not (isinstance(one, Variable) and _is_own(one, function, array)):
            return one
    return None


def _is_own(variable: Variable, function: Function, array: SharedArray) -> bool:
    """Return whether a variable that a function declares is the array, or the dynamic part that the array belongs to."""
    if variable.space.partition("::")[0] != "shared":
        return False
    return not variable.nbytes if array.is_dynamic else array.function == function.name


def static_bytes(module: Module, kernel: Function) -> int:
    """Return the static shared memory of a kernel: its own, that of the functions it calls, and the module's variables that they use."""
    total = 0
    for one in sorted(shared_arrays(module, kernel), key=lambda one: -one.align):
        if not one.is_dynamic:
            total = -(-total // one.align) * one.align + one.nbytes
    return total


def _bounds(wanted: str | tuple[int, int]) -> tuple[int, int] | None:
    """Return the bounds of a range of the dynamic part, (0, 0) for all of it, or None for the name of an array. Raises RelayoutError for a
    bad range."""
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
    """Return a range of the dynamic part; (0, 0) selects all of it."""
    if last < first or first < 0 or (last == first and first):
        raise RelayoutError(f"the range {first}..{last} of dynamic shared memory is empty")
    title = f"{DYNAMIC}[{first}:{last}]" if last else DYNAMIC
    return SharedArray("", dynamic.names, title, last - first, dynamic.align, first)


def _answers(array: SharedArray, wanted: str) -> bool:
    """Return whether the last parts of an array's name, without parameters, are those of `wanted`."""
    parts, asked = _without_brackets(array.title).split("::"), _without_brackets(wanted).split("::")
    return parts[-len(asked) :] == asked


def _without_brackets(title: str) -> str:
    """Return a name without what is in brackets: `void ns::red<256>(int*)::sums` -> `ns::red::sums`."""
    depth, kept = 0, []
    for character in title:
        if character in "<([{":
            depth += 1
        elif character in ">)]}":
            depth -= 1
        elif depth == 0:
            kept.append(character)
    return "".join(kept).strip().rpartition(" ")[2]


def _shared_array(variable: Variable, function: str) -> SharedArray:
    return SharedArray(function, (variable.name,), demangle(variable.name), variable.nbytes, variable.alignment)


def _is_static(variable: Variable) -> bool:
    return variable.space.partition("::")[0] == "shared" and variable.nbytes > 0


def _extern(module: Module, functions: tuple[Function, ...]) -> Iterator[Variable]:
    """Yield the declarations of the dynamic part."""
    for one in (*module.variables.values(), *(one for function in functions for one in _declared_variables(function))):
        if one.space.partition("::")[0] == "shared" and not one.nbytes:
            yield one


def _declared_variables(function: Function) -> Iterator[Variable]:
    assert function.body is not None
    return (one for one in function.body.walk() if isinstance(one, Variable))


def _names(function: Function) -> Iterator[str]:
    """Yield the symbols that a function's instructions name."""
    for instruction in function.instructions():
        for operand in instruction.operands:
            if isinstance(operand, Symbol) or (isinstance(operand, Address) and isinstance(operand.base, Symbol)):
                yield from names_in(operand)

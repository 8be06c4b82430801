"""Find the kernels of a module by the names that users type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from memlane.errors import BadLaunch
from memlane.ptx import Function, Module
from memlane.titles import kernel_label, plain_name

_SUFFIX = re.compile(r"(?<![\w.])(\d+)[uUlL]+")
"""Matches the type suffix of an integer literal."""
_MOST_LISTED = 12
"""Names in a message: host code may launch hundreds of instantiations."""


def find_kernel(module: Module, name: str) -> Function:
    """Return the kernel with this name, ignoring spaces. Raises BadLaunch with the existing names if there is none."""
    matches = _matches(module, name)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise BadLaunch(f"several kernels of {module.name} match {name!r}: {listed_kernels(module, matches)}; use the full name")
    if (why := module.left_out.get(plain_name(name))) is not None:
        raise BadLaunch(why)
    raise BadLaunch(f"no kernel {name!r} in {module.name}; it has: {listed_kernels(module) or 'none'}")


def listed_kernels(module: Module, kernels: Sequence[Function] = ()) -> str:
    """Return the names by which to ask for these kernels, or for all, separated by commas.

    Of many kernels, only the first are named, followed by the number of others, and only one of several instantiations or overloads.
    """
    groups: dict[str, list[str]] = {}
    for kernel in kernels or module.kernels.values():
        groups.setdefault(plain_name(kernel.title), []).append(_typed_name(module, kernel))
    groups = {plain: sorted(names, key=_by_numbers) for plain, names in groups.items()}
    listed = [name for names in groups.values() for name in names]
    if len(listed) > _MOST_LISTED and len(groups) > 1:
        listed = [names[0] if len(names) == 1 else f"{names[0]} (1 of {len(names)} with this name)" for names in groups.values()]
    text = ", ".join(listed[:_MOST_LISTED])
    return f"{text} and {len(listed) - _MOST_LISTED} more" if len(listed) > _MOST_LISTED else text


def typed_names(module: Module) -> Iterator[str]:
    """Yield for each kernel the shortest of its names that finds it."""
    return (_typed_name(module, kernel) for kernel in module.kernels.values())


def _typed_name(module: Module, kernel: Function) -> str:
    plain, label, unqualified = _short_names(kernel.title)
    return next((name for name in (plain, unqualified, label, kernel.title) if _matches(module, name) == [kernel]), kernel.name)


def _matches(module: Module, name: str) -> list[Function]:
    """The kernels that answer to a name."""
    kernels = module.kernels
    if name in kernels:
        return [kernels[name]]
    asked = _compact(name)
    for alias, real in module.aliases.items():
        if _compact(alias) == asked and real in kernels:
            return [kernels[real]]
    titles = [kernel for kernel in kernels.values() if _compact(kernel.title) == asked]
    return titles or [kernel for kernel in kernels.values() if asked in map(_compact, _short_names(kernel.title))]


def _short_names(title: str) -> tuple[str, ...]:
    """Return shorter names of a kernel: `void ns::red<256>(int*)` -> `red`, `ns::red<256>`, `red<256>`."""
    named = kernel_label(title)
    head, bracket, rest = named.partition("<")
    return plain_name(title), named, head.rsplit("::", 1)[-1] + bracket + rest


def _by_numbers(name: str) -> list[tuple[int, str]]:
    """Return a sort key by which `k<64>` comes before `k<128>`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _compact(name: str) -> str:
    """Return a name without spaces and integer suffixes, which users may write differently (`8u` for 8)."""
    return _SUFFIX.sub(r"\1", "".join(name.split()))

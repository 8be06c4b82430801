"""Find the kernels of a module by the names that users type."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memlane.errors import BadLaunch
from memlane.ptx import Function, Module
from memlane.titles import kernel_label, plain_name

_SUFFIX = re.compile(r"(?<![\w.])(\d+)[uUlL]+")
"""Matches the type suffix of an integer literal."""


def find_kernel(module: Module, name: str) -> Function:
    """Return the kernel with this name, ignoring spaces. Raises BadLaunch with the existing names if there is none."""
    kernels = module.kernels
    if name in kernels:
        return kernels[name]
    asked = _compact(name)
    for alias, real in module.aliases.items():
        if _compact(alias) == asked and real in kernels:
            return kernels[real]
    titles = [kernel for kernel in kernels.values() if _compact(kernel.title) == asked]
    matches = titles or [kernel for kernel in kernels.values() if asked in map(_compact, _short_names(kernel.title))]
    if len(matches) == 1:
        return matches[0]
    listed = ", ".join(kernel.title for kernel in (matches or kernels.values()))
    if matches:
        raise BadLaunch(f"several kernels of {module.name} match {name!r}: {listed}; use the full name")
    if (why := module.left_out.get(plain_name(name))) is not None:
        raise BadLaunch(why)
    raise BadLaunch(f"no kernel {name!r} in {module.name}; it has: {listed or 'none'}")


def typed_names(module: Module) -> Iterator[str]:
    """Yield for each kernel the shortest of its names that finds it."""
    for kernel in module.kernels.values():
        plain, label, unqualified = _short_names(kernel.title)
        yield next((name for name in (plain, unqualified, label, kernel.title) if _is_found(module, name, kernel)), kernel.name)


def _is_found(module: Module, name: str, kernel: Function) -> bool:
    try:
        return find_kernel(module, name) is kernel
    except BadLaunch:
        return False


def _short_names(title: str) -> tuple[str, ...]:
    """Return shorter names of a kernel: `void ns::red<256>(int*)` -> `red`, `ns::red<256>`, `red<256>`."""
    named = kernel_label(title)
    head, bracket, rest = named.partition("<")
    return plain_name(title), named, head.rsplit("::", 1)[-1] + bracket + rest


def _compact(name: str) -> str:
    """Return a name without spaces and integer suffixes, which users may write differently (`8u` for 8)."""
    return _SUFFIX.sub(r"\1", "".join(name.split()))

"""The names by which people ask for the kernels of a module."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memlane.errors import BadLaunch
from memlane.ptx import Function, Module
from memlane.titles import kernel_label, plain_name

_SUFFIX = re.compile(r"(?<![\w.])(\d+)[uUlL]+")
"""A whole number with the letters of its type."""


def find_kernel(module: Module, name: str) -> Function:
    """Return the kernel that answers to `name`, however it is spaced. Raises BadLaunch with the names that exist if there is none."""
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
    if matches:
        listed = ", ".join(kernel.title.removeprefix("void ") for kernel in matches)
        raise BadLaunch(f"several kernels of {module.name} match {name!r}: {listed}; use the full name")
    if (why := module.left_out.get(plain_name(name))) is not None:
        raise BadLaunch(why)
    raise BadLaunch(f"no kernel {name!r} in {module.name}; it has: {', '.join(typed_names(module)) or 'none'}")


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
    """`void ns::red<256>(int*)` -> `red`, `ns::red<256>`, `red<256>`."""
    named = kernel_label(title)
    head, bracket, rest = named.partition("<")
    return plain_name(title), named, head.rsplit("::", 1)[-1] + bracket + rest


def _compact(name: str) -> str:
    """What the spellings of one name have in common: people space it as they like, and may write `8u` where ours has 8."""
    return _SUFFIX.sub(r"\1", "".join(name.split()))

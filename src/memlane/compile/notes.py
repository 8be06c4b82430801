"""What is said about parts of a program that were left out, in few lines: a header for graphics can cost hundreds of declarations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MOST = 3
"""How many of a kind are told one by one."""
_DECLARATIONS = "{count} declarations of {files}, the first of them "
_FILE = re.compile(r"[^\n(]+(?=\(\d+\))")


def of_headers(absent: Iterable[str]) -> list[str]:
    """Return a note for each header that was not found."""
    return [f"header {header} was not found and was left out" for header in absent]


def of_refusals(refusals: Iterable[str]) -> list[str]:
    """Return notes about declarations that the compiler refused, given its errors; one note where there are many."""
    one, several = "left out because it does not compile for the device", "left out because they do not compile for the device"
    return few(refusals, f"{one}: ", f"{several}: {_DECLARATIONS}")


def of_lost_launches(errors: Iterable[str]) -> list[str]:
    """Return notes about host code that may launch a template kernel and could not be read, given the compiler's errors."""
    told = "host code that may launch a kernel was not followed: "
    return few(errors, told, f"{told}{{count}} statements of {{files}}, the first of them ")


def of_templates(unused: Sequence[str]) -> list[str]:
    """Return notes about templates of kernels of which there is no instantiation."""
    told = "ask for one with --instantiate"
    if len(unused) <= _MOST:
        return [f"no host code launches the kernel template {name}; {told} '{name}<...>'" for name in unused]
    return [f"no host code launches {len(unused)} kernel templates: {listed(unused)}; {told} '{unused[0]}<...>'"]


def listed(names: Sequence[str], most: int = 6) -> str:
    """Return names with commas; the number of those that are left out where there are many."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def few(errors: Iterable[str], one: str = "", several: str = _DECLARATIONS) -> list[str]:
    """Return the compiler's errors, each behind `one`; of many only the first, behind `several`, with their count and files."""
    errors = list(errors)
    if len(errors) <= _MOST:
        return [one + error for error in errors]
    files = dict.fromkeys(found.group() for error in errors if (found := _FILE.match(error)))
    return [several.format(count=len(errors), files=listed([*files])) + errors[0]]

"""Summarize the parts of a program that were left out: one header for graphics can account for hundreds of declarations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MOST = 3
"""Maximum number of omissions of a kind that are listed individually."""
_DECLARATIONS = "{count} declarations of {files}, the first of them "
_FILE = re.compile(r"[^\n(]+(?=\(\d+\))")


def of_headers(absent: Iterable[str]) -> list[str]:
    """Return a note for each header that was not found."""
    return [f"header {header} was not found and was left out" for header in absent]


def of_refusals(refusals: Iterable[str]) -> list[str]:
    """Return notes about declarations that the compiler refused, given its errors; a single note if there are many."""
    one, several = "left out because it does not compile for the device", "left out because they do not compile for the device"
    return few(refusals, f"{one}: ", f"{several}: {_DECLARATIONS}")


def of_lost_launches(errors: Iterable[str]) -> list[str]:
    """Return notes about host code that may launch a template kernel but did not compile, given the compiler's errors."""
    told = "host code that may launch a kernel was not followed: "
    return few(errors, told, f"{told}{{count}} statements of {{files}}, the first of them ")


def of_templates(unused: Sequence[str]) -> list[str]:
    """Return notes about kernel templates that have no instantiation."""
    told = "ask for one with --instantiate"
    if len(unused) <= _MOST:
        return [f"no host code launches the kernel template {name}; {told} '{name}<...>'" for name in unused]
    return [f"no host code launches {len(unused)} kernel templates: {listed(unused)}; {told} '{unused[0]}<...>'"]


def listed(names: Sequence[str], most: int = 6) -> str:
    """Return names separated by commas; beyond `most` names, the number of the rest."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def few(errors: Iterable[str], one: str = "", several: str = _DECLARATIONS) -> list[str]:
    """Return the compiler's errors, each behind `one`; if there are many, only the first, behind `several` with their count and files."""
    errors = list(errors)
    if len(errors) <= _MOST:
        return [one + error for error in errors]
    files = dict.fromkeys(found.group() for error in errors if (found := _FILE.match(error)))
    return [several.format(count=len(errors), files=listed([*files])) + errors[0]]

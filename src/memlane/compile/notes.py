"""Say what of a program was left out and why it has no kernel; one header for graphics can account for hundreds of declarations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from memlane.compile.nvrtc import Diagnostic
from memlane.titles import plain_name

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


def of_templates_by_name(unused: Sequence[str]) -> dict[str, str]:
    """Return for each kernel template without an instantiation, by its plain name, the message for those who ask for it."""
    asked = "ask for one with instantiate=('{0}<...>',) or --instantiate '{0}<...>'"
    return {plain_name(name): f"{name} is a template and has no instantiation here; {asked.format(name)}" for name in unused}


def of_lambdas(errors: Iterable[Diagnostic]) -> list[str]:
    """Return a note about kernels that host code launches with its lambdas, given the compiler's errors in them; none if there are none."""
    told = "kernels that the host code launches with its lambdas were left out because they do not compile: "
    return [told + error.message for error in islice(errors, 1)]


def of_dropped_launches(launches: Iterable[str]) -> list[str]:
    """Return a note for each launch whose template arguments have no meaning at file scope, for host code that cannot be followed."""
    return [f"{launch}, which the host code launches, means nothing outside it and was not instantiated" for launch in launches]


def of_templates_alone(templates: Mapping[str, Sequence[str]], main: str, followed: bool) -> str:
    """Return the end of the message for a program whose kernels are all templates without an instantiation; empty if there are none.

    `templates` holds their names by file, `main` is the name of the main file. `followed` is whether all host code was compiled that
    may launch one; if so, and all templates are in headers, the launches are most likely in another file.
    """
    names = list(dict.fromkeys(name for found in templates.values() for name in found))
    if not names:
        return ""
    asked = f"ask for one with instantiate=('{names[0]}<...>',) or --instantiate '{names[0]}<...>'"
    if not followed or templates.get(main):
        return f", only templates of kernels: {listed(names)}; {asked}"
    headers = listed([name for name, found in templates.items() if found], _MOST)
    return f" of its own, and no launch was found of the templates that it includes from {headers}; name a file that has one, or {asked}"


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

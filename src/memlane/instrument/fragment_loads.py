"""Probe a load that ptxas splits into several accesses, such as that of a wmma fragment: the window ends when all its registers are
filled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memlane.instrument.registers import words_of
from memlane.instrument.schemes import Access, Scheme, Stamps


def fragment_stamps(scheme: Scheme, access: Access, values: Sequence[tuple[str, str]]) -> Stamps:
    """Return the clock reads of the scheme with all of `values`, registers and their types, in place of the single value of `access`."""
    name = access.registers
    words = [words_of(register, kind, f"{name}part{number}_") for number, (register, kind) in enumerate(values)]
    parts = [one for word in words for one in word.names]
    joined = "".join(f"or.b32 {name}all, {name}all, {part};\n" for part in parts[1:])
    stamps = scheme.stamps(replace(access, value=(f"{name}all", "b32")))
    text = "".join(word.text for word in words) + f".reg .b32 {name}all;\nmov.b32 {name}all, {parts[0]};\n{joined}"
    return replace(stamps, after=text + stamps.after)

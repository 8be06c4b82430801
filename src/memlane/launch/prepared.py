"""Launches made ready, for those who start one again and again and count microseconds."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Protocol

from memlane.launch.observe import observed
from memlane.launch.schedule import Launch


class Prepared(Protocol):
    """A launch whose arguments are packed and checked. Only its first argument, a pointer, may be another each time."""

    def start(self, first: int) -> None:
        """Launch with `first` as the address in the first argument; asynchronous. Who gives the address keeps the memory alive."""
        ...


@dataclass(frozen=True)
class Rebound:
    """On any target: a launch like others, which observers see."""

    launch: Launch

    def start(self, first: int) -> None:
        out, *others = self.launch.arguments
        memory = None if out.memory is None else (first, out.memory[1])
        arguments = (replace(out, data=struct.pack("<Q", first), memory=memory), *others)
        self.launch.kernel.target.launch(observed(replace(self.launch, arguments=arguments)))

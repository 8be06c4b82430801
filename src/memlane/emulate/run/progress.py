"""How far a launch of the emulator has come."""

from __future__ import annotations

import time
from typing import Any

import numpy.typing as npt

from memlane.launch import Launch, tell_progress

EVERY_S = 0.1


class Progress:
    """Tells those who follow how many blocks have ended, while generated code counts them."""

    def __init__(self, launch: Launch, context: npt.NDArray[Any]) -> None:
        self._launch, self._context = launch, context
        self._next = time.perf_counter() + EVERY_S

    def tell(self) -> None:
        """Say so if the last time is long enough ago; to be called often."""
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + EVERY_S
            tell_progress(self._launch, int(self._context["finished"].sum()))

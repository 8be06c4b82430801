"""Report the progress of an emulated launch."""

from __future__ import annotations

import time
from typing import Any

import numpy.typing as npt

from memlane.launch import Launch, tell_progress

REPORT_INTERVAL_S = 0.1


class Progress:
    """Reporter of the number of blocks that have ended, while generated code counts them."""

    def __init__(self, launch: Launch, context: npt.NDArray[Any]) -> None:
        self._launch, self._context = launch, context
        self._next = time.perf_counter() + REPORT_INTERVAL_S

    def tell(self) -> None:
        """Report progress if the last report is at least `REPORT_INTERVAL_S` old; call it often."""
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + REPORT_INTERVAL_S
            tell_progress(self._launch, int(self._context["finished"].sum()))

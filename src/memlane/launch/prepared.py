"""Launches made ready, for those who start one again and again and count microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from memlane.launch.kernel import Launch
from memlane.launch.observe import observed


class Prepared(Protocol):
    """A launch that is packed, checked and ready. It keeps what it uses alive."""

    def start(self) -> None:
        """Launch on the default stream; asynchronous."""
        ...


@dataclass(frozen=True)
class PlainLaunch:
    """On any target: a launch like others, which observers see."""

    launch: Launch

    def start(self) -> None:
        self.launch.kernel.target.launch(observed(self.launch))

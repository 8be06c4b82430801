"""Modules that a command needs when it runs, and not for its help or for what a shell completes.

    if TYPE_CHECKING:
        from memlane import measure
    else:
        measure = later("memlane.measure")

`load` loads all that modules of commands announced so. It is called in one place, in front of the command, where Ctrl-C ends the process at
once; what was announced later still loads on its first use.
"""

from __future__ import annotations

from importlib import import_module


class _Later:
    """Stands for a module, whose attributes it has."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        return getattr(import_module(self._name), name)


_announced: dict[str, None] = {}


def later(name: str) -> object:
    """The module called `name`, not loaded yet."""
    _announced[name] = None
    return _Later(name)


def load() -> None:
    """Load what was announced, and what these modules announce in their turn."""
    loaded: set[str] = set()
    while names := _announced.keys() - loaded:
        for name in sorted(names):
            import_module(name)
        loaded |= names

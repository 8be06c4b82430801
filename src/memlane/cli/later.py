"""Load modules lazily that a command needs to run, but not for its help or for shell completion.

    if TYPE_CHECKING:
        from memlane import measure
    else:
        measure = later("memlane.measure")

`load` imports all modules registered by `later`. It is called in one place, just before the command runs, where Ctrl-C ends the process at
once. Modules registered afterwards load on first use.
"""

from __future__ import annotations

from importlib import import_module


class _Later:
    """Proxy of a module that imports it when an attribute is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        return getattr(import_module(self._name), name)


_announced: dict[str, None] = {}


def later(name: str) -> object:
    """Return a proxy of the module `name`, which is not imported yet."""
    _announced[name] = None
    return _Later(name)


def load() -> None:
    """Import all registered modules, and those that they register in turn."""
    loaded: set[str] = set()
    while names := _announced.keys() - loaded:
        for name in sorted(names):
            import_module(name)
        loaded |= names

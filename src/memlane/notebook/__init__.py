"""Display traces, counts, findings and comparisons in IPython and Jupyter, and trace cells with `%%memlane`.

`import memlane` in a notebook registers the displays; `%load_ext memlane` adds the magic too, and loads what that needs. `display` lists
the displayed types, `tables` renders them; `magic` is the cell magic.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from memlane.notebook.display import register, unregister

__all__ = ["load_ipython_extension", "register", "unload_ipython_extension", "unregister"]


def load_ipython_extension(shell: Any) -> None:
    """Register the displays and the cell magic `%%memlane`, on `%load_ext memlane`. `shell` is an InteractiveShell."""
    register(shell)
    shell.register_magic_function(import_module("memlane.notebook.magic").magic_of(shell), "cell", "memlane")


def unload_ipython_extension(shell: Any) -> None:
    """Undo `load_ipython_extension`, on `%unload_ext memlane`."""
    unregister(shell)
    shell.magics_manager.magics["cell"].pop("memlane", None)

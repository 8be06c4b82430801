"""IPython and Jupyter: traces, counts, findings and comparisons show themselves, and `%%memlane` traces a cell.

`import memlane` in a notebook makes them show themselves; `%load_ext memlane` brings the magic too, and loads what that needs. Inside:
`display` says which types show themselves, `tables` how; `magic` is the cell magic.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from memlane.notebook.display import register, unregister

__all__ = ["load_ipython_extension", "register", "unload_ipython_extension", "unregister"]


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext memlane` does: displays, and the cell magic `%%memlane`. `shell` is an InteractiveShell."""
    register(shell)
    shell.register_magic_function(import_module("memlane.notebook.magic").magic_of(shell), "cell", "memlane")


def unload_ipython_extension(shell: Any) -> None:
    """What `%unload_ext memlane` does."""
    unregister(shell)
    shell.magics_manager.magics["cell"].pop("memlane", None)

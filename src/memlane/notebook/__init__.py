"""IPython and Jupyter: traces, counts, findings and comparisons show themselves, and `%%memlane` traces a cell.

`import memlane` in a notebook makes them show themselves; `%load_ext memlane` brings the magic too. Inside: display <- magic.
"""

from __future__ import annotations

from typing import Any

from memlane.notebook.display import register, unregister
from memlane.notebook.magic import magic_of

__all__ = ["load_ipython_extension", "register", "unload_ipython_extension", "unregister"]


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext memlane` does: displays, and the cell magic `%%memlane`. `shell` is an InteractiveShell."""
    register(shell)
    shell.register_magic_function(magic_of(shell), "cell", "memlane")


def unload_ipython_extension(shell: Any) -> None:
    """What `%unload_ext memlane` does."""
    unregister(shell)
    shell.magics_manager.magics["cell"].pop("memlane", None)

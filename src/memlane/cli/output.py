"""Where results go and what is said of them."""

from __future__ import annotations

from pathlib import Path


def output_path(given: Path | None, source: Path, suffix: str) -> Path:
    """The file to write: `given`, else named after `source`, in the working directory."""
    return given or Path(source.stem + suffix)

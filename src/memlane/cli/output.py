"""Where results go and what is said of them."""

from __future__ import annotations

from pathlib import Path

from memlane.errors import CommandError


def output_path(given: Path | None, source: Path, suffix: str, *, force: bool) -> Path:
    """The file to write: `given`, else named after `source` in the working directory. Refuses one that exists unless `force`.

    Called before the work starts, so that a long run does not end in a refusal.
    """
    path = given or Path(source.stem + suffix)
    if path.exists() and not force:
        raise CommandError(f"{path} exists; use --force to overwrite it, or -o to write elsewhere", exit_code=1)
    if not path.parent.is_dir():
        raise CommandError(f"no directory {path.parent} to write {path.name} into", exit_code=1)
    return path

"""Directories of data files that a user can add to, one TOML file for each thing: chips and networks."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LONGEST_LINE, _LONGEST_FILE = 4096, 1 << 20
"""In characters. A name of thousands of parts takes the parser minutes and gigabytes."""


@dataclass(frozen=True)
class DataFiles:
    """The files of one kind of thing: `<name>.toml` describes what is called `<name>`."""

    kind: str
    """What messages call the thing, as `chip`."""
    variable: str
    """The environment variable with the user's directory; without it that is `~/.config/memlane/<kind>s`."""
    shipped: Path
    """The directory of the files that come with memlane."""
    error: type[Exception]
    """What is raised for a file that cannot be read."""

    def user_directory(self) -> Path | None:
        """Return where files of the user lie, whether or not it exists; None for a user without a home."""
        try:
            return Path(os.environ.get(self.variable) or f"~/.config/memlane/{self.kind}s").expanduser()
        except RuntimeError:
            return None

    def directories(self) -> tuple[Path, ...]:
        """Return where files are looked for, first match first."""
        user = self.user_directory()
        return (self.shipped,) if user is None else (user, self.shipped)

    def names(self) -> tuple[str, ...]:
        """Return the names of all files, sorted."""
        return tuple(sorted({path.stem for path in self._files()}))

    def find(self, name: str) -> Path | None:
        """Return the first file with a name; None where there is none."""
        return next((path for path in self._files() if path.stem == name), None)

    def _files(self) -> Iterator[Path]:
        for directory in self.directories():
            try:
                yield from [path for path in directory.iterdir() if path.suffix == ".toml"]
            except OSError:
                continue  # it is not there, or not for this user to read

    def unread_directory(self) -> str:
        """Return why the user's directory is not read although it is there, as the end of a sentence; empty where it is read or absent."""
        user = self.user_directory()
        try:
            if user is not None:
                os.listdir(user)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"; {self.kind} files in {user} cannot be read: {error.strerror}"
        return ""

    def read(self, path: Path) -> dict[str, Any]:
        """Return what a file says. Raises `error` for one that cannot be read, or is no TOML."""
        what = f"cannot read the {self.kind} file {path}"
        try:
            written = path.read_text(encoding="utf-8")
            if max(map(len, written.splitlines()), default=0) > _LONGEST_LINE or len(written) > _LONGEST_FILE:
                limits = f"it is too long: at most {_LONGEST_FILE:,} characters are allowed, and {_LONGEST_LINE:,} in a line"
                raise self.error(f"{what}: {limits}")
            return tomllib.loads(written)
        except RecursionError:
            raise self.error(f"{what}: its arrays or tables are nested too deeply") from None
        except OSError as error:
            raise self.error(f"{what}: {error.strerror}") from error
        except ValueError as error:  # no text, no TOML, or a number of thousands of digits
            raise self.error(f"{what}: {error}") from error

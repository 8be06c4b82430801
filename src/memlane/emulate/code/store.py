"""Caches machine code on disk for later processes, and other results that take long to compute.

An entry is a file: a line that names the format, a line with a digest of the rest, a line of JSON with facts for the caller, and the code
as an object file. Its name is a digest of everything that determines the code. A file that was changed, or belongs to another user, counts
as absent. Entries are written to a temporary file and moved into place, so several processes may work at once. The folder is bounded: the
least recently used entries are evicted first.

`MEMLANE_CACHE_DIR` names the folder, `MEMLANE_CACHE=0` disables the cache. A folder that cannot be written is not an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from memlane.errors import MemlaneError

MOST_BYTES = 256 << 20
_LEFT = 0.75
"""Fraction of the bound that remains after an eviction, so that not every later entry has to evict another."""
_FORMAT = b"memlane machine code 1\n"
_SUFFIX = ".code"
_FRESH_S = 3600.0
"""Seconds after a use within which another use is not recorded, and within which a temporary file may still be being written."""
_YES, _NO = ("", "1", "yes", "true", "on"), ("0", "no", "false", "off")
"""Values of `MEMLANE_CACHE`."""
_COVERED = (
    "chip",
    "emulate",
    "launch",
    "plan",
    "ptx",
    "checks.py",
    "data_files.py",
    "errors.py",
    "number_format.py",
    "packages.py",
    "source.py",
    "titles.py",
    "walks.py",
)
"""Parts of memlane's own source that determine the machine code: the emulator with all that it imports."""


@dataclass(frozen=True)
class Entry:
    """Machine code, and facts about it as JSON values."""

    facts: dict[str, Any]
    code: bytes


class Store:
    """A folder of entries."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder = folder
        self.most_bytes = most_bytes
        self._nbytes: int | None = None
        """Bytes in the folder when this process last scanned it, plus what it wrote since; None before the first scan."""

    def get(self, key: str) -> Entry | None:
        """Return the entry of a key (see `digest`), or None."""
        try:
            with self._path(key).open("rb") as file:
                state = os.fstat(file.fileno())
                content = file.read() if _is_ours(state) else b""
        except OSError:
            return None
        entry = _read(key, content)
        if entry is not None and time.time() - state.st_mtime > _FRESH_S:
            with contextlib.suppress(OSError):
                os.utime(self._path(key))
        return entry

    def put(self, key: str, entry: Entry) -> None:
        """Store an entry, in place of any with the same key. Does nothing if the folder cannot be written."""
        content = _written(key, entry)
        temporary = None
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, self._path(key))
            self._make_room(len(content))
        except OSError:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)

    def usage(self) -> tuple[int, int]:
        """Return the number of files, and their bytes."""
        files = self._files()
        return len(files), sum(nbytes for _, nbytes, _ in files)

    def is_writable(self) -> bool:
        """Return whether entries can be stored here, as far as can be determined without trying."""
        # `os.path` answers False for what may not be read, where `pathlib` raises.
        nearest = next((place for place in (self.folder, *self.folder.parents) if os.path.lexists(place)), None)
        return nearest is not None and os.path.isdir(nearest) and os.access(nearest, os.W_OK | os.X_OK)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _files(self) -> list[tuple[float, int, str]]:
        """Return when each file was last used, its bytes and its path."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as listing:
            for one in listing:
                with contextlib.suppress(OSError):  # it may be removed already
                    state = one.stat(follow_symlinks=False)
                    found.append((state.st_mtime, state.st_size, one.path))
        return found

    def _make_room(self, added: int) -> None:
        if self._nbytes is not None and self._nbytes + added <= self.most_bytes:
            self._nbytes += added
            return
        files = sorted(self._files())
        self._nbytes = sum(nbytes for _, nbytes, _ in files)
        too_much = self._nbytes > self.most_bytes
        for used, nbytes, path in files:
            abandoned = not path.endswith(_SUFFIX) and time.time() - used > _FRESH_S
            superfluous = path.endswith(_SUFFIX) and too_much and self._nbytes > _LEFT * self.most_bytes
            if abandoned or superfluous:
                with contextlib.suppress(OSError):
                    os.unlink(path)
                self._nbytes -= nbytes


def _is_ours(state: os.stat_result) -> bool:
    """Return whether a file belongs to this user: files of others are not executed."""
    return not hasattr(os, "getuid") or state.st_uid == os.getuid()


def _written(key: str, entry: Entry) -> bytes:
    rest = json.dumps(entry.facts, separators=(",", ":")).encode() + b"\n" + entry.code
    return _FORMAT + _checksum(key, rest) + b"\n" + rest


def _read(key: str, content: bytes) -> Entry | None:
    if not content.startswith(_FORMAT):
        return None
    checksum, _, rest = content[len(_FORMAT) :].partition(b"\n")
    if checksum != _checksum(key, rest):
        return None
    facts, _, code = rest.partition(b"\n")
    return Entry(json.loads(facts), code)


def _checksum(key: str, rest: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\n" + rest).hexdigest().encode()


def digest(*parts: str) -> str:
    """Return a key: equal for equal parts only."""
    return hashlib.sha256("".join(f"{len(part)} {part}\n" for part in parts).encode("utf-8", "surrogatepass")).hexdigest()


def sources_digest(covered: Sequence[str] = _COVERED) -> str:
    """Return a digest of the memlane source that determines machine code, or of `covered`; empty if it cannot be read."""
    found = hashlib.sha256()
    try:
        paths = sorted(map(Path, _names(covered)))
        for path in paths:
            content = path.read_bytes()
            found.update(f"{path.relative_to(_package()).as_posix()} {len(content)}\n".encode() + content)
    except OSError:
        return ""
    return found.hexdigest() if paths else ""


def _package() -> Path:
    return Path(__file__).resolve().parents[2]


def _names(covered: Sequence[str]) -> list[str]:
    """Return the paths of the sources. Called before each entry is stored, so without the objects of `pathlib`."""
    places = [os.path.join(_package(), name) for name in covered]
    found, folders = [place for place in places if os.path.isfile(place)], [place for place in places if os.path.isdir(place)]
    while folders:
        with os.scandir(folders.pop()) as listing:
            for one in listing:
                if one.name.endswith(".py"):
                    found.append(one.path)
                elif one.is_dir():
                    folders.append(one.path)
    return sorted(found)


def _changes(covered: Sequence[str] = _COVERED) -> list[tuple[str, int]]:
    """Return when each of the sources was changed."""
    try:
        return [(name, os.stat(name).st_mtime_ns) for name in _names(covered)]
    except OSError:
        return []


# Now, not when the first kernel is compiled: an upgrade may have replaced the loaded files by then.
_LOADED = _changes()
SOURCES = sources_digest()
"""The digest of the sources that this process has loaded."""


class Sources:
    """The part of memlane's own source that determines entries of one kind, other than machine code."""

    def __init__(self, *covered: str) -> None:
        """Record the state of the files and folders `covered`, relative to the package. Call it when the code is loaded."""
        self._covered = covered
        self._loaded = _changes(covered)

    @cached_property
    def digest(self) -> str:
        """Return the digest of the sources; empty if they cannot be read, or have changed since they were loaded."""
        return sources_digest(self._covered) if self.are_loaded() else ""

    def are_loaded(self) -> bool:
        """Return whether the files are unchanged since they were loaded."""
        return _changes(self._covered) == self._loaded


def keep(key: str, entry: Entry, sources: Sources | None = None) -> None:
    """Store an entry, unless memlane's source has changed since this process loaded it: part of the process may have been loaded after the
    change. `sources`: what determines the entry, if it is not machine code."""
    store = present_store()
    if store is not None and (_changes() == _LOADED if sources is None else sources.are_loaded()):
        store.put(key, entry)


_stores: dict[Path, Store] = {}


def present_store() -> Store | None:
    """Return the store that the environment names; None if it is disabled, or code could not be distinguished from that of other versions.
    Raises MemlaneError for a `MEMLANE_CACHE` that is neither yes nor no."""
    folder = default_folder() if _is_wanted() else None
    if folder is None or not SOURCES:
        return None
    return _stores.setdefault(folder, Store(folder))


def _is_wanted() -> bool:
    said = os.environ.get("MEMLANE_CACHE", "").lower()
    if said not in (*_YES, *_NO):
        raise MemlaneError(f"MEMLANE_CACHE={said}: set it to 0 (no cache) or 1; MEMLANE_CACHE_DIR names the cache directory")
    return said in _YES


def default_folder() -> Path | None:
    """Return the folder of the entries; None if the user has no home, or the folder is relative to a working directory that no longer
    exists."""
    named = os.environ.get("MEMLANE_CACHE_DIR")
    try:
        return (Path(named).expanduser() if named else _users_caches() / "memlane").absolute()
    except (OSError, RuntimeError):
        return None


def _users_caches() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")

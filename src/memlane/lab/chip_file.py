"""Write a chip file of the user's own, with values measured by labs in place of the shipped ones.

    text = chip_file(target.chip, latency_facts({"l2": 281.8}, "measured: 2026-11-21, driver 580.159.04, memlane lab latency"))
    path = write_chip(target.chip, text, force=False)

User files take precedence over those that come with memlane (`memlane.chip.load`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from memlane.chip import SHIPPED, Chip, Fact, from_file, user_directory
from memlane.errors import CommandError


def chip_path(chip: Chip) -> Path:
    """Return the path of the user's file of a chip. Raises CommandError for a user without a home directory."""
    folder = user_directory()
    if folder is None:
        raise CommandError("there is no home directory for a chip file of your own; name a directory for it in MEMLANE_CHIPS")
    return folder / f"{chip.name}.toml"


def check_chip_file(chip: Chip, force: bool) -> Path:
    """Return the path where the user's file of a chip may be written.

    Raises CommandError if a file exists already and not `force`, or if it cannot be read.
    """
    path = chip_path(chip)
    try:
        exists = path.exists()
    except OSError as error:
        raise CommandError(f"cannot write the chip file {path}: {error.strerror}") from None
    if exists and not force:
        raise CommandError(f"{path} exists and may hold other measurements; pass --force to overwrite it")
    return path


def latency_facts(latencies: Mapping[str, float], source: str) -> dict[str, Fact]:
    """Return fields of `[latency]`, in cycles, as facts by their full names."""
    return {f"latency.{name}": Fact(value, "cycles", *_source(source)) for name, value in latencies.items()}


def chip_file(chip: Chip, measured: Mapping[str, Fact]) -> str:
    """Return the text of a chip file with measured facts, by full name: `latency.l2`, `copy_gb_per_s`.

    The file of a chip with a shipped file refers to that one by `like`, and keeps the other entries of the user's file; for a GPU without a
    shipped file it holds everything that is known of it.
    """
    shipped = SHIPPED / f"{chip.name}.toml"
    if shipped.is_file():
        known = from_file(shipped).facts
        own = {name: fact for name, fact in chip.facts.items() if known.get(name) != fact}
        return f"like = {json.dumps(chip.name)}\n\n{_tables({**own, **measured})}"
    major, minor = chip.compute_capability
    head = f"product = {json.dumps(chip.product)}\ncompute_capability = [{major}, {minor}]\n"
    return f"{head}\n{_tables({**chip.facts, **measured})}"


def write_chip(chip: Chip, text: str, *, force: bool) -> Path:
    """Write the user's file of a chip. Raises CommandError if one exists and not `force`, or if it cannot be written."""
    path = check_chip_file(chip, force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write the chip file {path}: {error.strerror}") from error
    return path


def _source(text: str) -> tuple[str, str]:
    kind, _, rest = text.partition(":")
    return kind, rest.strip()


def _tables(facts: Mapping[str, Fact]) -> str:
    """Return facts as TOML, by full name: those without a dot go to `[chip]`."""
    tables: dict[str, list[str]] = {}
    for name, fact in facts.items():
        table, _, entry = name.rpartition(".")
        tables.setdefault(table or "chip", []).append(f"{entry} = {_entry(fact)}")
    return "\n".join(f"[{table}]\n" + "\n".join(lines) + "\n" for table, lines in tables.items())


def _entry(fact: Fact) -> str:
    value = list(fact.value) if isinstance(fact.value, tuple) else fact.value
    unit = f", unit = {json.dumps(fact.unit)}" if fact.unit else ""
    return f"{{ value = {json.dumps(value)}{unit}, source = {json.dumps(f'{fact.kind}: {fact.source}')} }}"

"""Draw a tile as text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from memlane.number_format import plural

SHOWN = 64
"""Maximum rows and columns drawn; for larger tiles only the extents are added."""


def of_banks(banks: npt.NDArray[np.int64]) -> str:
    """Return int64[rows, columns] as lines of numbers, with column and row headers."""
    rows, columns = banks.shape
    shown = banks[:SHOWN, :SHOWN]
    width = len(str(max(int(shown.max()), shown.shape[1] - 1)))
    margin = len(str(shown.shape[0] - 1))
    lines = [
        f"{'':{margin}} | {_numbers(range(shown.shape[1]), width)}",
        f"{'-' * margin}-+-{'-' * (shown.shape[1] * (width + 1) - 1)}",
        *(f"{row:{margin}} | {_numbers(numbers.tolist(), width)}" for row, numbers in enumerate(shown)),
    ]
    if (rows, columns) != shown.shape:
        lines.append(f"(of {plural(rows, 'row')} and {plural(columns, 'column')})")
    return "\n".join(lines) + "\n"


def _numbers(values: Sequence[int], width: int) -> str:
    return " ".join(f"{value:{width}}" for value in values)

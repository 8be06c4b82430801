"""Compute correlation coefficients with 95 % intervals.

Pearson's r has the interval of Fisher's transformation. Spearman's rho is Pearson's r of the ranks, ties sharing their mean rank; its
interval is the same with the variance of Bonett and Wright (Psychometrika 65, 2000), (1 + rho^2 / 2) / (n - 3) in place of 1 / (n - 3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NORMAL_95 = 1.959963984540054
"""Standard deviations that contain 95 % of the standard normal distribution."""


@dataclass(frozen=True)
class Coefficient:
    """A correlation coefficient and its interval."""

    value: float
    low: float
    high: float
    count: int


def pearson(x: Sequence[float], y: Sequence[float]) -> Coefficient | None:
    """Return Pearson's r; None for fewer than 4 pairs, or if one side is constant."""
    return _coefficient(np.asarray(x, float), np.asarray(y, float), 0.0)


def spearman(x: Sequence[float], y: Sequence[float]) -> Coefficient | None:
    """Return Spearman's rho; None as for `pearson`."""
    return _coefficient(ranks(x), ranks(y), 0.5)


def ranks(values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the ranks from 1; equal values share their mean rank."""
    array = np.asarray(values, float)
    below = (array[:, None] > array[None, :]).sum(axis=1)
    equal = (array[:, None] == array[None, :]).sum(axis=1)
    shared: npt.NDArray[np.float64] = below + (equal + 1) / 2
    return shared


def _coefficient(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], wider: float) -> Coefficient | None:
    """Return the coefficient; `wider`: the factor by which its square adds to the variance."""
    if len(x) < 4 or _same(x) or _same(y):
        return None
    x, y = x - x.mean(), y - y.mean()
    value = float(np.clip((x * y).sum() / math.sqrt((x * x).sum() * (y * y).sum()), -1.0, 1.0))
    if abs(value) == 1.0:
        return Coefficient(value, value, value, len(x))
    half = NORMAL_95 * math.sqrt((1.0 + wider * value * value) / (len(x) - 3))
    low, high = math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half)
    return Coefficient(value, low, high, len(x))


def _same(values: npt.NDArray[np.float64]) -> bool:
    """Return whether the values differ only by rounding."""
    return bool(np.ptp(values) <= 1e-12 * np.abs(values).max())

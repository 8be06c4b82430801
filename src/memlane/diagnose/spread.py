"""Compute the difference of two medians and its confidence interval."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

ROUNDS = 4000
FEWEST = 5
"""Minimum numbers per side for an interval."""
SEED = 20261121


def median_change(before: Numbers, after: Numbers, certainty: float) -> tuple[float, float, float | None, float | None] | None:
    """Return median before, median after, and an interval for their difference, by resampling both sides (bootstrap, percentiles).

    The interval is None if a side has fewer than `FEWEST` numbers; the result is None if a side has none. The same numbers always give the
    same interval.
    """
    if not len(before) or not len(after):
        return None
    medians = float(np.median(before)), float(np.median(after))
    if min(len(before), len(after)) < FEWEST:
        return (*medians, None, None)
    random = np.random.default_rng(SEED)
    differences = _medians(after, random) - _medians(before, random)
    tail = (1 - certainty) / 2
    low, high = np.quantile(differences, [tail, 1 - tail])
    return (*medians, float(low), float(high))


def _medians(numbers: Numbers, random: np.random.Generator) -> Numbers:
    """Return the medians of `ROUNDS` resamples.

    The median of n numbers drawn from n sorted ones is the element at floor(n u), where u is the median of n uniform numbers, which has a
    beta distribution. So each resample takes a single random number.
    """
    count = len(numbers)
    half = (count + 1) / 2
    places = np.floor(random.beta(half, half, ROUNDS) * count).astype(np.intp)
    return np.sort(numbers)[np.minimum(places, count - 1)]

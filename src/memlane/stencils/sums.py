"""Compute exact sums that are rounded once, so that their bits do not depend on the division of the cells or the order of additions.

A sum is a long integer in units of 2^-1074, the least positive double: `LIMBS` words of 32 bits, each kept in 64 bits, so that many numbers
can be added before anything is carried. Three more words count values that are infinite or not numbers. A thread keeps the words around the
exponent of its last value in registers. It adds them to those of its block in shared memory when an exponent lies outside, and at the end.
Integers are added, so the order does not matter. The idea is U. Kulisch's long accumulator.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

LIMBS = 67
"""Words of the integer: 2,098 bits of doubles, and 46 for carries."""
WORDS = LIMBS + 3
_UNIT = 1 << 1074


def words_of(reductions: Mapping[str, str], is_exact: bool) -> dict[str, int]:
    """Return the number of words of 8 bytes of each reduction, in order: exact sums are integers of many words."""
    return {name: WORDS if is_exact and kind == "sum" else 1 for name, kind in reductions.items()}


def exact_value(parts: list[npt.NDArray[np.float64]]) -> float:
    """Add parts of `WORDS` words each and return the nearest double. The words are integers stored in the bytes of doubles."""
    words = sum(np.array([int(word) for word in part.view(np.int64)], dtype=object) for part in parts)
    assert isinstance(words, np.ndarray)
    above, below, not_numbers = words[LIMBS:]
    if not_numbers or (above and below):
        return float("nan")
    if above or below:
        return float("inf") if above else float("-inf")
    total = sum(word << 32 * at for at, word in enumerate(words[:LIMBS]))
    try:
        return float(total / _UNIT)  # Python divides integers with one rounding
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")


HELPER = f"""\
struct ExactSum {{
    long long limb[4] = {{0, 0, 0, 0}};
    int base = 0;  // the word of the sum that limb[0] belongs to

    // Adds a number: 53 bits, shifted by its exponent, in three words.
    __device__ __forceinline__ void add(double value, unsigned long long* words) {{
        const unsigned long long bits = __double_as_longlong(value), fraction = bits & 0xfffffffffffffull;
        const int exponent = (int)(bits >> 52) & 0x7ff;
        if (exponent == 0x7ff) {{
            atomicAdd(&words[fraction ? {LIMBS + 2} : value > 0 ? {LIMBS} : {LIMBS + 1}], 1ull);
            return;
        }}
        const unsigned long long digits = exponent ? fraction | 1ull << 52 : fraction;
        const int shift = exponent ? exponent - 1 : 0, word = shift / 32, by = shift % 32;
        if (word < base || word > base + 1) {{
            spill(words);
            base = word;
        }}
        const long long sign = (long long)bits < 0 ? -1 : 1;
        const long long low = sign * (long long)(digits << by & 0xffffffffull);
        const long long middle = sign * (long long)(digits >> (32 - by) & 0xffffffffull);
        const long long high = by ? sign * (long long)(digits >> (64 - by)) : 0;
        const bool is_next = word > base;
        limb[0] += is_next ? 0 : low;
        limb[1] += is_next ? low : middle;
        limb[2] += is_next ? middle : high;
        limb[3] += is_next ? high : 0;
    }}

    __device__ __forceinline__ void spill(unsigned long long* words) {{
        for (int i = 0; i < 4; ++i) {{
            if (limb[i]) atomicAdd(&words[base + i], (unsigned long long)limb[i]);
            limb[i] = 0;
        }}
    }}
}};

// Carries what words have beyond 32 bits to those behind them, so that the words of many blocks can be added.
__device__ __forceinline__ void carry_words(unsigned long long* words) {{
    long long carried = 0;
    for (int i = 0; i < {LIMBS}; ++i) {{
        const long long word = (long long)words[i] + carried;
        carried = i + 1 < {LIMBS} ? word >> 32 : 0;
        words[i] = (unsigned long long)(word - (carried << 32));
    }}
}}
"""

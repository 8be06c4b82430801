"""Check the claims of the publication of 2012, figure by figure, on this machine.

Kanda, Okuyama, Ino, Hagihara: a method to log memory accesses of CUDA programs for the analysis of their efficiency; IPSJ SIG Technical
Report 2012-HPC-133 No. 3, on a GeForce GTX 480. Its figures 5 to 11 are about volume rendering. It gives shares of time as numbers, and
says of correlations whether they are strong; `STRONG` is the threshold here. Where frame rates differ by less than `ALIKE`, no correlation
is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from memlane.lab.volume.correlation import Coefficient, pearson, spearman
from memlane.lab.volume.frames import DEPENDENT, SIMPLE, Frames
from memlane.lab.volume.observe import Observed
from memlane.lab.volume.scene import FRONT, SHAPES, TURNED, View

STRONG, ALIKE = 0.7, 0.10
SAME = 0.01
"""Relative difference below which access times count as the same: the rest is variation between launches."""
WIDE = SHAPES[3:]
"""Shapes of 8 threads or more in x."""
SLOW, FAST = "1x128", "128x1"
"""The slowest and the fastest shape of the front view, in 2012."""
SHARES = {(SIMPLE, SLOW): 0.20, (SIMPLE, FAST): 0.13, (DEPENDENT, SLOW): 0.80, (DEPENDENT, FAST): 0.50}
"""Shares of the time that stamps attribute to accesses in figure 5, by scheme and shape."""
PAIR = ("2x64", "8x16")
"""The two shapes of figures 10 and 11."""
RATE, HIT = "frame rate", "hit rate"
ALL_SAME = "access times are the same with every shape, to 1 %, or there are too few shapes"
ALIKE_TIMES = "access times are alike, to 1 %"
BY_SIGN = "by its sign; the interval has 0 in it"
MODELLED = "a model cannot tell"
"""Verdict for an emulator's times, in which every texture fetch takes the same time."""
YES, NO, UNKNOWN = "yes", "no", "unknown"


@dataclass(frozen=True)
class Claim:
    """One claim of the publication next to ours."""

    figure: str
    found: str
    """The claim of 2012, in our words."""
    here: str
    """Result of this machine."""
    value: float | None
    """Deciding number."""
    holds: str
    """`yes`, `no`, or why neither can be said."""


def spread(frames: Frames, view: View) -> float:
    """Return the share by which the fastest shape is faster than the slowest."""
    rates = [frames.of[view, shape].per_second for shape in frames.shapes(view)]
    return max(rates) / min(rates) - 1.0


def correlation(
    frames: Frames, view: View, scheme: str, against: str, shapes: tuple[str, ...] = SHAPES, ranked: bool = False
) -> Coefficient | None:
    """Return the correlation of access frequency with frame or hit rate over the shapes of a view.

    None if one of them is not known or constant (access frequencies within `SAME`).
    """
    pairs = []
    for shape in frames.shapes(view):
        one = frames.of[view, shape]
        seen, other = one.observed[scheme], one.per_second if against == RATE else one.hit_rate
        if shape in shapes and seen is not None and other is not None:
            pairs.append((seen.frequency, other))
    x, y = [first for first, _ in pairs], [second for _, second in pairs]
    if x and max(x) < (1.0 + SAME) * min(x):
        return None
    return spearman(x, y) if ranked else pearson(x, y)


def robust(frames: Frames, view: View, scheme: str, against: str, ranked: bool) -> list[float]:
    """Return the coefficients with each of the shapes left out in turn, as far as they are known."""
    shapes = frames.shapes(view)
    left = [correlation(frames, view, scheme, against, tuple(shape for shape in shapes if shape != out), ranked) for out in shapes]
    return [one.value for one in left if one is not None]


def claims(frames: Frames, warps: Mapping[str, Observed]) -> list[Claim]:
    """Return all claims about which something was measured. `warps`: along one SM, seen from `TURNED`, by shape."""
    found: list[Claim] = []
    if {(FRONT, SLOW), (FRONT, FAST)} <= frames.of.keys():
        found += _shares(frames)
    for view, strong_hits in ((FRONT, True), (TURNED, False)):
        if set(frames.shapes(view)) == set(SHAPES):
            found += _correlations(frames, view, strong_hits)
    if set(PAIR) <= warps.keys():
        found += _warps(warps, frames)
    return found


def _shares(frames: Frames) -> list[Claim]:
    """Check figure 5."""
    found, ends = [], (frames.of[FRONT, SLOW], frames.of[FRONT, FAST])
    texts = {
        SIMPLE: "probes that do not wait put 20 % (1x128) and 13 % (128x1) of the time into accesses, so arithmetic seems to be the limit",
        DEPENDENT: "probes that wait put 80 % (1x128) and 50 % (128x1) of the time into accesses, so memory is the limit",
    }
    tests: dict[str, Callable[[float], bool]] = {SIMPLE: lambda share: share < 0.5, DEPENDENT: lambda share: share >= 0.5}
    for scheme, text in texts.items():
        seen = [one.observed[scheme] for one in ends]
        shares = [one.share for one in seen if one is not None]
        if len(shares) < len(ends):
            found.append(Claim("5", text, "no fetch was recorded", None, UNKNOWN))
            continue
        here = f"{scheme}: {100 * shares[0]:.0f} % ({SLOW}) and {100 * shares[1]:.0f} % ({FAST})"
        found.append(Claim("5", text, here, max(shares) if scheme == SIMPLE else min(shares), _word(all(map(tests[scheme], shares)))))
    faster = ends[1].per_second / ends[0].per_second
    here = f"128x1 has {faster:.2f} times the frame rate of 1x128"
    holds = YES if faster >= 1 + ALIKE else NO if faster <= 1 / (1 + ALIKE) else f"frame rates hardly differ ({100 * (faster - 1):+.1f} %)"
    return [*found, Claim("5", "seen from (0, 0, 0), 128x1 is the fastest shape and 1x128 the slowest", here, faster, holds)]


def _correlations(frames: Frames, view: View, strong_hits: bool) -> list[Claim]:
    """Check figures 6 and 7, or 8 and 9."""
    hits, rates = ("6", "7") if strong_hits else ("8", "9")
    ours = f"seen from {view}, the access frequency by probes that wait "
    theirs = f"seen from {view}, the access frequency by probes that do not wait "
    found = []
    if strong_hits:
        found.append(_strong(frames, view, HIT, f"{hits}a", ours + "correlates strongly with the hit rate of the texture cache"))
        found.append(
            _opposite(
                frames, view, HIT, f"{hits}b", theirs + "correlates negatively with the hit rate if blocks have 8 or more threads in x"
            )
        )
        found.append(_strong(frames, view, RATE, f"{rates}a", ours + "correlates strongly with the frame rate"))
        found.append(
            _opposite(
                frames, view, RATE, f"{rates}b", theirs + "correlates negatively with the frame rate if blocks have 8 or more threads in x"
            )
        )
    else:
        found.append(_weak(frames, view, DEPENDENT, HIT, f"{hits}a", ours + "does not always correlate with the hit rate"))
        found.append(_weak(frames, view, SIMPLE, HIT, f"{hits}b", theirs + "does not correlate with the hit rate"))
        found.append(_strong(frames, view, RATE, f"{rates}a", ours + "mostly correlates with the frame rate"))
        found.append(_weak(frames, view, SIMPLE, RATE, f"{rates}b", theirs + "does not correlate with the frame rate"))
    found.append(_better(frames, view, f"{rates}"))
    return found


def _decided(
    frames: Frames,
    view: View,
    scheme: str,
    against: str,
    figure: str,
    text: str,
    shapes: tuple[str, ...],
    test: Callable[[Coefficient], str],
) -> Claim:
    coefficient = correlation(frames, view, scheme, against, shapes)
    apart = spread(frames, view)
    if coefficient is None:
        reason = frames.hits_unknown or ALL_SAME if against == HIT else ALL_SAME
        return Claim(figure, text, reason, None, UNKNOWN)
    here = f"r = {coefficient.value:+.2f} ({coefficient.low:+.2f} to {coefficient.high:+.2f}), {coefficient.count} shapes"
    if against == RATE and apart < ALIKE:
        return Claim(figure, text, here, coefficient.value, f"frame rates hardly differ ({100 * apart:.1f} %)")
    return Claim(figure, text, here, coefficient.value, test(coefficient))


def _strong(frames: Frames, view: View, against: str, figure: str, text: str) -> Claim:
    return _decided(frames, view, DEPENDENT, against, figure, text, SHAPES, lambda one: _word(one.value >= STRONG and one.low > 0))


def _weak(frames: Frames, view: View, scheme: str, against: str, figure: str, text: str) -> Claim:
    return _decided(frames, view, scheme, against, figure, text, SHAPES, lambda one: _word(one.value < STRONG))


def _opposite(frames: Frames, view: View, against: str, figure: str, text: str) -> Claim:
    return _decided(
        frames, view, SIMPLE, against, figure, text, WIDE, lambda one: BY_SIGN if one.value < 0 < one.high else _word(one.value < 0)
    )


def _better(frames: Frames, view: View, figure: str) -> Claim:
    """Compare our correlation with the frame rate to that of probes that do not wait."""
    text = f"seen from {view}, probes that wait follow the frame rate better than probes that do not wait"
    ours, theirs = (correlation(frames, view, scheme, RATE) for scheme in (DEPENDENT, SIMPLE))
    apart = spread(frames, view)
    if ours is None:
        return Claim(figure, text, ALL_SAME, None, UNKNOWN)
    said = "constant" if theirs is None else f"r = {theirs.value:+.2f}"
    here = f"r = {ours.value:+.2f}, and {said} for probes that do not wait"
    if apart < ALIKE:
        return Claim(figure, text, here, ours.value, f"frame rates hardly differ ({100 * apart:.1f} %)")
    return Claim(figure, text, here, ours.value, _word(theirs is None or ours.value > theirs.value))


def _warps(warps: Mapping[str, Observed], frames: Frames) -> list[Claim]:
    """Compare the two shapes in figures 10 and 11."""
    tall, wide = (warps[shape] for shape in PAIR)
    times = tall.access_time, wide.access_time
    found = [
        Claim(
            "10",
            "accesses take longer with 8x16 than with 2x64, though the hit rates are alike",
            f"{times[0]:.0f} and {times[1]:.0f} cycles; {_hit_rates(frames)}",
            times[1] / times[0],
            ALIKE_TIMES if max(times) < (1.0 + SAME) * min(times) else _word(times[1] > times[0]),
        )
    ]
    deviations = [float(np.std(one.means)) for one in (tall, wide)]
    here = f"standard deviation over warps {deviations[0]:.1f} (2x64) and {deviations[1]:.1f} cycles (8x16)"
    found.append(_compared("10", "the access times of warps vary more with 8x16 than with 2x64", here, deviations, min(times)))
    ends = [_ends(one) for one in (tall, wide)]
    here = f"the outer tenths take {100 * ends[0]:.0f} % (2x64) and {100 * ends[1]:.0f} % (8x16) of what the others take"
    holds = ALIKE_TIMES if max(abs(1.0 - end) for end in ends) < SAME else _word(max(ends) < 1)
    found.append(
        Claim("10", "of the warps that meet the volume, the first and the last tenth have short access times", here, max(ends), holds)
    )
    inside = [float(np.std(one.series(one.chosen))) for one in (tall, wide)]
    here = f"standard deviation over the accesses of a warp {inside[0]:.1f} (2x64) and {inside[1]:.1f} cycles (8x16)"
    found.append(_compared("11", "inside a warp, too, access times vary more with 8x16", here, inside, min(times)))
    return found


def _compared(figure: str, text: str, here: str, deviations: list[float], time: float) -> Claim:
    """Tell whether the second deviation is larger; undecided if both are under `SAME` of the access time."""
    ratio = deviations[1] / deviations[0] if deviations[0] else None
    return Claim(figure, text, here, ratio, ALIKE_TIMES if max(deviations) < SAME * time else _word(deviations[1] > deviations[0]))


def _hit_rates(frames: Frames) -> str:
    rates = [frames.of[TURNED, shape].hit_rate if (TURNED, shape) in frames.of else None for shape in PAIR]
    return "hit rates " + " and ".join("unknown" if rate is None else f"{100 * rate:.1f} %" for rate in rates)


def _ends(one: Observed) -> float:
    """Return the mean access time of the first and the last tenth of the warps over that of those between."""
    tenth, means = max(1, len(one.means) // 10), one.means
    between = means[tenth:-tenth]
    return float(np.concatenate([means[:tenth], means[-tenth:]]).mean() / between.mean()) if len(between) else 1.0


def _word(holds: bool) -> str:
    return YES if holds else NO

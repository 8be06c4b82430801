"""Check the claims of the publication of 2012, figure by figure.

Kawamura, Maruyama, Matsuoka (IPSJ HPC 2012), sections 4.2 and 4.3, on TSUBAME 2.0. The behaviour of the published machine is predicted here
by two models; that of both rules on the available devices is measured, or modelled by the emulator's clock, with one step per launch as
there. A gain is the speed-up by the best number of steps between exchanges over one step, less 1. Gains within `ALIKE` of a published range
count as alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memlane.lab.stencil.cases import HIMENO, SEVEN
from memlane.lab.stencil.measure import AS_PUBLISHED, Kernel, Measured
from memlane.lab.stencil.predict import Scaling

ALIKE = 0.02
HIDDEN = 1.05
"""Largest ratio of a step to the longer of inner region and exchange, borders added, at which the other counts as hidden."""
NEAR = 0.05
"""Largest share by which the number of steps that a model chooses may be slower than the best."""
YES, NO = "yes", "no"


@dataclass(frozen=True)
class Claim:
    """One claim of the publication next to ours."""

    figure: str
    found: str
    """The claim of 2012, in our words."""
    by: str
    """Source of the check: a model of the published machine, or the available devices."""
    here: str
    value: float | None
    """Deciding number."""
    holds: str


def claims(predicted: Sequence[Scaling], measured: Sequence[Measured], kernels: Sequence[Kernel], is_modelled: bool) -> list[Claim]:
    """Return all claims about which something was predicted or measured."""
    found = []
    for one in predicted:
        if one.case.is_published and one.points:
            found += _seven(one) if one.case.rule == SEVEN else _himeno(one)
    found += _most(predicted)
    clock = "modelled" if is_modelled else "measured"
    for run in measured:
        found += _regimes(run.as_published, clock)
    found += _kernels(kernels, clock)
    return sorted(found, key=lambda one: (int(one.figure.partition(",")[0].partition(" ")[0]), one.by))


def _seven(one: Scaling) -> list[Claim]:
    """Check figures 7, 8, 10 and 11."""
    by, many = f"model {one.by}, published machine", [count for count in one.devices if count >= 4]
    found = []
    if 2 in one.devices:
        text = "7-point, 2 processes: bound by computation, so more steps between exchanges make it slower"
        found.append(_slower("7, 10", text, one, 2, by))
    if many:
        gains = [one.gain(count) for count in many]
        here = "; ".join(f"{count}: {100 * gain:.1f} % (k = {one.best(count)})" for count, gain in zip(many, gains, strict=True))
        text = "7-point, 4 processes and more: the best k gains 8.7 to 12.3 %"
        found.append(Claim("7", text, by, here, max(gains), _word(all(_within(gain, 0.087, 0.123) for gain in gains))))
        slowest = one.points[many[0], 1].step / one.points[many[-1], 1].step
        here = f"k = 1: {one.points[many[0], 1].step:.0f} us on {many[0]}, {one.points[many[-1], 1].step:.0f} us on {many[-1]}"
        text = "7-point: from 4 processes on the time does not fall, because faces stay as large"
        found.append(Claim("8", text, by, here, slowest, _word(slowest < 1.0 + NEAR)))
    if 2 in one.devices and many:
        bounds = {count: one.points[count, 1].bound for count in (2, *many)}
        here = "; ".join(
            f"{count}: inner {one.points[count, 1].inner:.0f}, exchange {one.points[count, 1].exchange:.0f} us" for count in (2, many[0])
        )
        text = "7-point: with 2 processes the inner region hides the exchange, from 4 on the exchange hides the inner region"
        holds = bounds[2] == "computation" and all(bounds[count] == "communication" for count in many)
        found.append(Claim("8", text, by, here, None, _word(holds)))
    if 4 in one.devices:
        found.append(_best("11", "7-point, 4 processes: 3 steps are best, in the model and measured", one, 4, (3,), by))
    return found


def _himeno(one: Scaling) -> list[Claim]:
    """Check figures 9, 12 and 13."""
    by, many = f"model {one.by}, published machine", [count for count in one.devices if count >= 16]
    found = []
    if many:
        gains = [one.gain(count) for count in many]
        here = "; ".join(f"{count}: {100 * gain:.1f} % (k = {one.best(count)})" for count, gain in zip(many, gains, strict=True))
        text = "himeno, 16 processes and more: 3 steps are best and gain 13 to 21 %"
        holds = all(one.best(count) == 3 and _within(gain, 0.13, 0.21) for count, gain in zip(many, gains, strict=True))
        found.append(Claim("9", text, by, here, max(gains), _word(holds)))
    if 8 in one.devices:
        text = "himeno, 8 processes: bound by computation, so more steps between exchanges make it slower"
        found.append(_slower("12", text, one, 8, by))
    if 16 in one.devices:
        found.append(_best("13", "himeno, 16 processes: 2 steps are best in the model, 2 to 3 measured", one, 16, (2, 3), by))
    return found


def _most(predicted: Sequence[Scaling]) -> list[Claim]:
    """Check the two numbers of the abstract."""
    found = []
    for model in dict.fromkeys(one.by for one in predicted):
        own = {one.case.rule: one for one in predicted if one.by == model and one.case.is_published and one.points}
        if set(own) == {SEVEN, HIMENO}:
            most = {rule: max(own[rule].gain(count) for count in own[rule].devices) for rule in (SEVEN, HIMENO)}
            here = "; ".join(f"{rule}: {100 * gain:.1f} %" for rule, gain in most.items())
            text = "the best k gains at most 12 % for the 7-point stencil and 21 % for himeno"
            holds = _within(most[SEVEN], 0.12, 0.123) and _within(most[HIMENO], 0.21, 0.21)
            found.append(Claim("7, 9", text, f"model {model}, published machine", here, most[HIMENO], _word(holds)))
    return found


def _slower(figure: str, text: str, one: Scaling, devices: int, by: str) -> Claim:
    over = one.over_steps(devices)
    more = {k: point.step / over[1].step - 1.0 for k, point in over.items() if k > 1}
    here = f"{over[1].bound}; " + ", ".join(f"k = {k}: {100 * share:+.1f} %" for k, share in more.items() if k in (2, max(more)))
    return Claim(figure, text, by, here, min(more.values(), default=None), _word(all(share > 0 for share in more.values())))


def _best(figure: str, text: str, one: Scaling, devices: int, expected: tuple[int, ...], by: str) -> Claim:
    best = one.best(devices)
    over = one.over_steps(devices)
    near = ", ".join(f"{over[k].step:.0f} us at k = {k}" for k in range(1, best + 2) if k in over)
    return Claim(figure, text, by, near, float(best), _word(best in expected))


def _regimes(run: Measured, clock: str) -> list[Claim]:
    """Check figures 7 to 13 on the available devices."""
    found = []
    for count in run.devices:
        over = run.over_steps(count)
        if count == 1 or len(over) < 2:
            continue
        by, name = f"{clock}, {run.case.title}, {count} devices, {run.by}", "7-point" if run.case.rule == SEVEN else "himeno"
        first, best = replace(over[1], exchange=exchange_us(run, count)), run.best(count)
        times = ", ".join(f"{point.step:.1f}" for point in over.values())
        here = f"inner {first.inner:.1f}, exchange {first.exchange:.1f} us; k = 1 to {max(over)}: {times} us"
        if first.bound == "computation":
            figure, text = ("7, 10" if run.case.rule == SEVEN else "12"), f"{name}, bound by computation: k = 1 is best"
            found.append(Claim(figure, text, by, here, float(best), _word(best == 1)))
        else:
            figure, text = ("11" if run.case.rule == SEVEN else "13"), f"{name}, bound by communication: 2 or 3 steps are best"
            found.append(Claim(figure, text, by, here, float(best), _word(best in (2, 3))))
        hidden = hidden_share(run, count)
        text = "a step takes the longer of inner region and exchange, and the borders: they overlap nearly completely"
        here = f"k = 1: {first.step:.1f} us, and {hidden:.2f} times what that gives"
        found.append(Claim("8", text, by, here, hidden, _word(hidden <= HIDDEN)))
        found.append(_model_choice(run, count, by))
        if run.case.rule == HIMENO:
            ends = run.off("kawamura", count, 1), run.off("kawamura", count, max(over))
            here = f"{100 * ends[0]:+.0f} % at k = 1, {100 * ends[1]:+.0f} % at k = {max(over)}"
            text = "himeno: the paper's model is nearly right at k = 1, and its error grows with k"
            found.append(
                Claim("12" if first.bound == "computation" else "13", text, by, here, abs(ends[1]), _word(abs(ends[0]) < abs(ends[1])))
            )
    return found


def _model_choice(run: Measured, count: int, by: str) -> Claim:
    lost = lost_by_choice(run, "kawamura", count)
    chosen = chosen_by(run, "kawamura", count)
    figure = "11" if run.case.rule == SEVEN else "13"
    here = f"k = {chosen} chosen, {run.best(count)} best; {100 * lost:.1f} % slower"
    text = "the model, given measured exchanges, finds the best number of steps though its times are off"
    return Claim(figure, text, by, here, lost, _word(lost <= NEAR))


def chosen_by(run: Measured, model: str, count: int) -> int:
    """Return the steps between exchanges that a model expects to be fastest."""
    expected = {k: point.step for (devices, k), point in run.models[model].items() if devices == count}
    return min(expected, key=lambda k: expected[k])


def lost_by_choice(run: Measured, model: str, count: int) -> float:
    """Return the share by which the number of steps that a model chooses is slower than the best one."""
    over = run.over_steps(count)
    return over[chosen_by(run, model, count)].step / over[run.best(count)].step - 1.0


def hidden_share(run: Measured, count: int) -> float:
    """Return the time of a step over the longer of inner region and exchange, borders added, with an exchange after each step."""
    one = run.points[count, 1]
    return one.step / (max(one.inner, exchange_us(run, count)) + one.boundary)


def exchange_us(run: Measured, count: int) -> float:
    """Return the time of an exchange after each step with nothing running concurrently, so that no device waits for another's borders."""
    return run.behind.get((count, 1), run.points[count, 1]).exchange


def _kernels(kernels: Sequence[Kernel], clock: str) -> list[Claim]:
    """Check figure 14."""
    found = []
    for cut in dict.fromkeys(one.cut for one in kernels):
        errors, slopes = {}, {}
        for rule in (SEVEN, HIMENO):
            own = sorted((one for one in kernels if one.cut == cut and one.case.rule == rule), key=lambda one: one.case.shape[0])
            if len(own) < 2:
                continue
            errors[rule] = own[-1].modelled["kawamura"] / own[-1].us - 1.0
            slopes[rule] = slope({one.case.shape[0]: one.modelled["kawamura"] for one in own}) / slope(
                {one.case.shape[0]: one.us for one in own}
            )
        if len(errors) == len((SEVEN, HIMENO)):
            kernel = "kernels cut as in the paper" if cut == AS_PUBLISHED else f"{cut} kernels"
            text = "the model of a kernel is off for the 7-point stencil and near for himeno; what decides is the slope over the planes"
            here = "; ".join(f"{rule}: {100 * error:+.0f} %, slope {slopes[rule]:.2f} times" for rule, error in errors.items())
            found.append(Claim("14", text, f"{clock}, {kernel}", here, abs(errors[SEVEN]), _word(abs(errors[SEVEN]) > abs(errors[HIMENO]))))
    return found


def slope(times: Mapping[int, float]) -> float:
    """Return the time of one more plane, between the fewest and the most."""
    least, most = min(times), max(times)
    return (times[most] - times[least]) / (most - least)


def _within(gain: float, low: float, high: float) -> bool:
    return low - ALIKE <= gain <= high + ALIKE


def _word(holds: bool) -> str:
    return YES if holds else NO

"""Whether the advice takes a remap that loses: in every case of the lab of remaps, beside uploads and launches that are timed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import memlane as ml
from memlane.errors import LayoutError
from memlane.lab.remap.cases import KMEANS, MAKE, PARTICLES, SPARSE, STRIPS, Case
from memlane.launch import Target
from memlane.layout import ArrayLayout, column_major
from memlane.layout.array_spec import array_layout
from memlane.optimize.advise import LayoutAdvice, Tried
from memlane.transfer import upload

LAUNCHES = (1, 4, 16, 256)


class Timed:
    """The launch in the middle of a case, its advice, and what an upload and so many launches take under a layout."""

    def __init__(self, target: Target, case: Case) -> None:
        self.target, self.case = target, case
        self.call = case.without.calls[len(case.without.calls) // 2]
        self.kernel = target.load(case.without.module)[self.call.kernel]
        self.memory = {name: target.array(host) for name, host in case.host.items()}
        self.memory |= {name: target.zeros(*kind) for name, kind in case.made.items()}
        self.arguments = [self.memory[one] if isinstance(one, str) else one for one in self.call.arguments]

    def advice(self) -> Iterator[tuple[str, LayoutAdvice]]:
        """Yield the advice for each array that the host gives, with the name of the array."""
        for one in ml.advise_layout(self.kernel[self.call.grid, self.call.block], *self.arguments):
            name = str(self.call.arguments[one.parameter])
            if name in self.case.host and one.tried:
                yield name, one

    def times_ns(self, name: str, layout: ArrayLayout) -> tuple[float, float]:
        """Return what the upload of an array takes, and one launch on it."""
        host = self.target.pinned(layout.shape, self.case.host[name].dtype)
        host[...] = self.case.host[name]
        array = upload(self.target, host, layout=layout)
        kernel, parameter = self.kernel, self.call.arguments.index(name)
        if not layout.is_row_major:
            kernel = ml.relayout(kernel, layout, parameter=parameter, shape=layout.shape, dtype=host.dtype)
        arguments = [array if number == parameter else one for number, one in enumerate(self.arguments)]
        assert array.transfer is not None
        alone = ml.time(kernel[self.call.grid, self.call.block], *arguments, repeats=1).median_ns
        return array.transfer.time().elapsed_ns, alone


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chip", "name", "size"),
    [
        ("gtx480", KMEANS, 512),
        ("gtx480", KMEANS, 8192),
        ("gtx480", STRIPS, 16),
        ("gtx480", SPARSE, 128),
        ("gtx480", PARTICLES, 512),
        ("h200", KMEANS, 512),
        ("h200", PARTICLES, 512),
    ],
)
def test_the_advice_never_takes_a_remap_that_loses(chip: str, name: str, size: int) -> None:
    timed = Timed(ml.target(f"emulator:{chip}", deterministic=True), MAKE[name](size))
    taken = 0
    for array, advice in timed.advice():
        as_it_is = array_layout("row-major", advice.shape)
        times = {layout: timed.times_ns(array, layout) for layout in (as_it_is, *(one.layout for one in advice.tried))}
        for launches in LAUNCHES:
            totals = {layout: upload_ns + launches * launch_ns for layout, (upload_ns, launch_ns) in times.items()}
            chosen = advice.layout(launches)
            assert totals[chosen] <= 1.02 * min(totals.values()), f"{advice} at {launches} launches: {totals}"
            assert totals[chosen] <= totals[as_it_is]
            taken += not chosen.is_row_major
    assert bool(taken) == ((chip, name, size) == ("gtx480", KMEANS, 8192))


def test_few_launches_do_not_pay_for_a_remap() -> None:
    quick, quicker = (Tried(layout, 10, time, True, 2000.0, exposed) for layout, time, exposed in _CANDIDATES)
    wrong = Tried(array_layout("pad(1)", (4, 4)), 1, 1.0, False, 0.0, 0.0)
    advice = LayoutAdvice("k", "t", True, 0, (4, 4), "f4", 80, 10, (80, 1000.0), (quick, quicker, wrong), ())
    as_it_is = array_layout("row-major", (4, 4))
    assert [advice.layout(launches) for launches in (1, 2, 5, 50)] == [as_it_is, quick.layout, quick.layout, quicker.layout]
    assert [advice.layout(launches, uploaded=False) for launches in (1, 5, 6)] == [as_it_is, quicker.layout, quicker.layout]


_CANDIDATES = ((column_major((4, 4)), 600.0, 500.0), (array_layout("diagonal", (4, 4)), 550.0, 2900.0))


def test_the_verdict_says_why_a_remap_does_not_pay() -> None:
    slower = Tried(column_major((4, 4)), 20, 1500.0, True, 2000.0, 900.0)
    advice = LayoutAdvice("k", "t", True, 0, (4, 4), "f4", 80, 10, (80, 1000.0), (slower,), ())
    assert advice.verdict.endswith(
        "No remap pays off: with Permuted(4x4, order (1, 0)), the fastest layout tried, the launch takes 1.5 us instead of 1 us "
        "(modelled). It moves 4 times fewer sectors. Here, each access computes its new position from the old one; the layout's index "
        "function in the source may be faster."
    )
    wrong = LayoutAdvice("k", "t", True, 0, (4, 4), "f4", 80, 10, (80, 1000.0), (Tried(slower.layout, 1, 1.0, False, 0.0, 0.0),), ())
    assert wrong.verdict.endswith("No remap pays off: with every layout that was tried, the launch computes different values.")


def test_an_upload_cannot_choose_a_layout_by_itself() -> None:
    with pytest.raises(
        LayoutError,
        match=r"layout 'auto' depends on the kernels that read the array: call advice = ml\.advise_layout\(kernel\[grid, block\]",
    ):
        upload("emulator:h200", np.zeros((4, 4), "f4"), layout="auto")

"""Find a layout of an array in shared memory that makes a launch faster, by trying."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from memlane.chip import STATIC_SHARED_BYTES, Chip
from memlane.compile import DeclaredArray, declared_array
from memlane.errors import LayoutError, MemlaneError, RelayoutError
from memlane.launch import Kernel, KernelCall, Launch, suspend_observers
from memlane.layout import Layout, Padded
from memlane.measure.isolation import without_observers
from memlane.measure.memory import Snapshot
from memlane.number_format import percent, plural, rounded
from memlane.optimize.candidates import candidates, geometries
from memlane.optimize.relayout import Shared, loaded_beside, relayout
from memlane.optimize.trials import Measured, Trials
from memlane.rewrite import ArrayAccess, SharedArray, find_array, shared_arrays
from memlane.rewrite.arrays import static_bytes

GAIN = 1.02
"""Minimum speedup for a layout to count as better, above the variation of repeated measurements."""
CUDA, NUMBA = "CUDA C++", "Numba"
_IDLE = "padded by all banks"
_COMMENT = {CUDA: "//", NUMBA: "#"}
"""Comment prefixes of the languages in which the author of a kernel lays out shared memory."""


@dataclass(frozen=True)
class Fix:
    """The layouts tried for one array of a launch."""

    kernel: str
    target: str
    modelled: bool
    array: SharedArray
    element_bytes: int
    original: Measured
    tried: tuple[Measured, ...]
    refused: tuple[tuple[str, str], ...]
    """Layouts that could not be tried, each with the reason."""
    language: str = CUDA
    """Language of the kernel: `CUDA C++` (also assumed for PTX), `Numba` or `Triton`."""
    declared: DeclaredArray | None = None
    """Declaration of the array in the source, if its rows can be padded there; else None."""

    def source(self, function: str) -> str:
        """Return source code for the best layout: an index function with its use, in the language of the kernel, or the padded declaration
        if that was compiled.

        Empty if there is no best layout, or if the language has no place for it (`advice` then says what to do).
        """
        layout = None if self.best is None else self.best.layout
        if layout is None or self.language not in _COMMENT:
            return ""
        if self.best is not None and self.best.in_source and self.declared is not None and isinstance(layout, Padded):
            return f"{self._declaration(layout)}   // line {self.declared.line}\n"
        text = layout.numba_source(function) if self.language == NUMBA else layout.cuda_source(function)
        where = f"element (i, j) of {layout.rows}x{layout.columns} at [{function}(i, j)] of an array of {plural(layout.size, 'element')}"
        return f"{text}{_COMMENT[self.language]} {where}\n"

    @property
    def advice(self) -> str:
        """Advice if the layout cannot be written in the source; else empty."""
        if self.best is None or self.language in _COMMENT:
            return ""
        return (
            f"{self.language} chooses the layout of shared memory itself, so a layout cannot be written in its source; "
            "memlane.relayout(kernel, layout) returns the changed kernel, which you launch like the original."
        )

    @property
    def best(self) -> Measured | None:
        """The fastest layout with the same output; None if none is faster than the original by `GAIN`."""
        better = [one for one in self.tried if one.same and one.speedup >= GAIN]
        return max(better, key=lambda one: one.speedup, default=None)

    @property
    def fewest(self) -> Measured | None:
        """The fastest layout with the same output and fewer wavefronts than the original; None if there is none.

        Among paddings tried in the source, which are about equally fast, it is the one with the fewest wavefronts.
        """
        fewer = [one for one in self.tried if one.same and one.wavefronts < self.original.wavefronts]
        if any(one.in_source for one in fewer):
            return min((one for one in fewer if one.in_source), key=lambda one: one.wavefronts)
        return max(fewer, key=lambda one: one.speedup, default=None)

    def _declaration(self, layout: Padded) -> str:
        assert self.declared is not None
        return self.declared.declaration(
            self.array.title.rpartition("::")[2], layout.pad * self.element_bytes // self.declared.element_bytes
        )

    @property
    def _limited_by(self) -> str:
        """The limiters of the modelled times of the original and of the best layout, in parentheses."""
        after = (self.best or self.original).limited_by
        if not self.original.limited_by or after == self.original.limited_by:
            return f" (limited by {after})" if after else ""
        return f" (limited by {self.original.limited_by} before and {after} after)"

    @property
    def verdict(self) -> str:
        """The result, in a sentence."""
        if not self.tried:
            return f"No layout of {self.array.title} could be tried: {self.refused[0][1] if self.refused else 'its extents are not known'}."
        by = ", by the emulator's model" + self._limited_by if self.modelled else ""
        if not any(one.same for one in self.tried):
            return (
                f"Every layout of {self.array.title} that was tried gave results that differ from the original. This happens if the "
                "result depends on the order of threads."
            )
        if self.best is None:
            best = max(one.speedup for one in self.tried if one.same)
            least = f" by at least {percent(GAIN - 1)}; the best is {percent(best - 1)} faster" if best > 1 else ""
            begun = f"No layout of {self.array.title} that was tried ({len(self.tried)}) makes {self.kernel} faster{least}{by}."
            return f"{begun}{self._saved_wavefronts}"
        return (
            f"{self._named(self.best)} makes {self.kernel} {rounded(self.best.speedup)} times as fast{by}, with {self.best.wavefronts:,} "
            f"wavefronts instead of {self.original.wavefronts:,}."
        )

    def _named(self, one: Measured) -> str:
        return f"{one.layout} in the source" if one.in_source else str(one.layout)

    @property
    def _saved_wavefronts(self) -> str:
        """The layout with fewer wavefronts, and why that does not show in the time, as far as known."""
        found = self.fewest
        if found is None:
            return ""
        begun = f" {self._named(found)} takes {plural(found.wavefronts, 'wavefront')} instead of {self.original.wavefronts:,}"
        if found.in_source:
            speed = "the same speed" if rounded(found.speedup) == "1" else f"{rounded(found.speedup)} times the speed"
            return f"{begun}, at {speed}: bank conflicts do not limit this launch."
        begun = f"{begun}; it was tried by rewriting the compiled kernel, which adds instructions to each access"
        if found.layout_alone is None:
            return f"{begun}, so it may be faster in the source."
        return f"{begun}: without these it is about {rounded(found.layout_alone)} times as fast."


def fix(
    call: KernelCall,
    *args: object,
    shared: Shared = None,
    rows: int | None = None,
    columns: int | None = None,
    layouts: Sequence[Layout] | None = None,
) -> tuple[Fix, ...]:
    """Try layouts of the arrays in shared memory of `call(*args)` with bank conflicts; memory is restored.

    `shared` names one array, as for `relayout`; by default all with bank conflicts are tried. `rows` and `columns` are its extents in
    elements; PTX does not contain them, so otherwise they are inferred from the steps between lanes, or guessed. `layouts` replaces the
    proposed layouts. Returns the result for each array, those with the most conflicts first; empty if there are none.
    """
    launch = call.bind(*args)
    with without_observers(launch):
        return fix_launch(launch, shared=shared, rows=rows, columns=columns, layouts=layouts)


def fix_launch(
    launch: Launch,
    *,
    shared: Shared = None,
    rows: int | None = None,
    columns: int | None = None,
    layouts: Sequence[Layout] | None = None,
) -> tuple[Fix, ...]:
    """Try layouts for a launch, like `fix`; the launch itself does not happen, and its effects are undone."""
    before = Snapshot(launch)
    with suspend_observers():
        try:
            trials = Trials(launch, before)
            return tuple(_tried(trials, array, rows, columns, layouts) for array in _arrays_with_conflicts(trials, shared))
        finally:
            before.restore()


def _arrays_with_conflicts(trials: Trials, shared: Shared) -> list[SharedArray]:
    """Return the arrays with excess wavefronts, the worst first; or the named array, whatever it costs."""
    kernel = trials.launch.kernel
    if shared is not None:
        return [find_array(kernel.module, shared, kernel.function)]
    excess = {}
    for array in shared_arrays(kernel.module, kernel.function):
        wavefronts, ideal = trials.wavefronts(trials.counts, kernel, array)
        excess[array] = wavefronts - ideal
    return sorted((array for array, beyond in excess.items() if beyond), key=lambda array: -excess[array])


def _tried(trials: Trials, array: SharedArray, rows: int | None, columns: int | None, layouts: Sequence[Layout] | None) -> Fix:
    launch = trials.launch
    kernel = launch.kernel
    accesses = trials.accesses(kernel, array)
    element = max((one.scalar for one in accesses), default=4) or 4
    original = trials.measured(None, array, launch, None)
    refused: dict[str, str] = {}
    declared = None if array.is_dynamic else declared_array(kernel.module, array.function, array.names[0], array.title)
    if declared is not None and rows is None and columns is None:
        columns = declared.columns * declared.element_bytes // element
    proposed = layouts if layouts is not None else _proposed(trials, array, accesses, element, rows, columns)
    in_source: dict[str, Kernel] = {}
    kernels: dict[str, tuple[Layout, Kernel]] = {}
    for layout in _distinct(proposed):
        from_source = None if declared is None else _padded_in_source(trials, declared, layout, element)
        if from_source is not None:
            in_source[str(layout)] = from_source
            kernels[str(layout)] = layout, from_source
            continue
        try:
            kernels[str(layout)] = layout, relayout(kernel, layout, shared=_name(array, launch), element_bytes=element)
        except (RelayoutError, LayoutError) as refusal:
            refused[str(layout)] = getattr(refusal, "message", str(refusal))
    rewritten = next((one for name, (one, _) in kernels.items() if isinstance(one, Padded) and name not in in_source), None)
    idle = {} if rewritten is None else _neutral_padding(kernel, rewritten, _name(array, launch), element)
    times = trials.times({"": kernel, **{name: one for name, (_, one) in kernels.items()}, **idle})
    tried = []
    for name, (layout, changed) in kernels.items():
        one = trials.measured(layout, array, replace(launch, kernel=changed), (times[name], times[""]))
        alone = None
        if isinstance(layout, Padded) and name not in in_source and idle:
            alone = _layout_alone(times[""], times[name], times[_IDLE])
        tried.append(replace(one, in_source=name in in_source, layout_alone=alone))
    timed = replace(original, time_ns=statistics.median(times[""]), limited_by=trials.limited_by.get(kernel, ""))
    tried.sort(key=lambda one: -one.speedup)
    return Fix(
        kernel.title, kernel.target.name, kernel.target.modelled, array, element, timed, tuple(tried),
        tuple(refused.items()), (kernel.function.convention.language if kernel.function.convention else "") or CUDA, declared,
    )  # fmt: skip


def _neutral_padding(kernel: Kernel, padded: Padded, shared: str, element: int) -> dict[str, Kernel]:
    """Return the kernel rewritten for a padding by all banks, which leaves every element in its bank; empty if there is no room for it."""
    banks = kernel.target.chip.banks
    whole = Padded(padded.rows, padded.columns, banks.banks * banks.bank_bytes // element)
    try:
        return {_IDLE: relayout(kernel, whole, shared=shared, element_bytes=element)}
    except (RelayoutError, LayoutError):
        return {}


def _layout_alone(original: Sequence[float], laid_out: Sequence[float], idle: Sequence[float]) -> float:
    """Return the estimated speedup without the cost of rewriting: the original's time minus the gain of the layout over the same code
    without it."""
    return statistics.median(
        before / max(before - (same - after), 1e-9) for before, after, same in zip(original, laid_out, idle, strict=True)
    )


def _padded_in_source(trials: Trials, declared: DeclaredArray, layout: Layout, element: int) -> Kernel | None:
    """Return the kernel compiled from a source with padded array rows.

    None for another kind of layout, or if the result differs, as it does if the source computes addresses in the array itself: then the
    compiled kernel is rewritten instead.
    """
    rows, columns = declared.rows, declared.columns * declared.element_bytes // element
    if not isinstance(layout, Padded) or (layout.rows, layout.columns) != (rows, columns):
        return None
    if layout.pad * element % declared.element_bytes:
        return None
    original = trials.launch.kernel
    try:
        changed = loaded_beside(original, declared.padded(layout.pad * element // declared.element_bytes))
    except (MemlaneError, KeyError):
        return None
    return changed if trials.is_same(changed) else None


def _distinct(layouts: Sequence[Layout]) -> Iterator[Layout]:
    """Yield the layouts without those that map every element as an earlier one does."""
    known: set[bytes] = set()
    for layout in layouts:
        places = layout.table.tobytes()
        if places not in known:
            known.add(places)
            yield layout


def _name(array: SharedArray, launch: Launch) -> str:
    return array.title if array.is_dynamic and array.nbytes else f"dynamic[0:{launch.shared_bytes}]" if array.is_dynamic else array.names[0]


def _proposed(
    trials: Trials, array: SharedArray, accesses: Sequence[ArrayAccess], element: int, rows: int | None, columns: int | None
) -> list[Layout]:
    launch = trials.launch
    nbytes = array.nbytes or launch.shared_bytes
    vector = max((one.nbytes for one in accesses), default=element) // element or 1
    room = 0 if array.is_dynamic else STATIC_SHARED_BYTES - static_bytes(launch.kernel.module, launch.kernel.function)
    seen = trials.seen(array, element)
    found: list[Layout] = []
    for geometry in geometries(nbytes, element, vector, seen, rows, columns):
        found += candidates(geometry, seen, launch.kernel.target.chip, room)
    return [*found, *([] if rows or columns else _usual_padding(launch.kernel.target.chip, nbytes, element, vector, room))]


def _usual_padding(chip: Chip, nbytes: int, element: int, vector: int, room: int) -> list[Layout]:
    """Return the usual padding of a one-dimensional array: one unused element after as many as fill the banks once."""
    filling = chip.banks.banks * chip.banks.bank_bytes // element
    rows = nbytes // element // filling
    return [Padded(rows, filling, vector)] if rows > 1 and rows * vector * element <= room and filling % vector == 0 else []

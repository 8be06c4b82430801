"""The layout of an array in shared memory that makes a launch quicker, found by trying."""

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
"""How many times quicker a layout must be to be called better: what measurements of one thing differ by."""
CUDA, NUMBA = "CUDA C++", "Numba"
_IDLE = "padded by all banks"
_COMMENT = {CUDA: "//", NUMBA: "#"}
"""How a comment begins, in the languages in which shared memory is laid out by who writes the kernel."""


@dataclass(frozen=True)
class Fix:
    """What was tried on one array of a launch."""

    kernel: str
    target: str
    modelled: bool
    array: SharedArray
    element_bytes: int
    original: Measured
    tried: tuple[Measured, ...]
    refused: tuple[tuple[str, str], ...]
    """Layouts that could not be tried, each with why."""
    language: str = CUDA
    """What the kernel was written in: `CUDA C++` (of which PTX is taken to be made), `Numba` or `Triton`."""
    declared: DeclaredArray | None = None
    """The declaration of the array in the source, where its rows can be padded there; None where there is none."""

    def source(self, function: str) -> str:
        """The best layout as a function to be put into the source, and how an element is found with it; in the language of that. Of a
        padding that was compiled from the source it is the declaration. Empty where there is no best one, or the language has no place for
        it (`advice` says so)."""
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
        """What to do where nothing can be put into the source; else empty."""
        if self.best is None or self.language in _COMMENT:
            return ""
        return (
            f"{self.language} chooses the layout of shared memory itself, so a layout cannot be written in its source; "
            "memlane.relayout(kernel, layout) returns the changed kernel, which you launch like the original."
        )

    @property
    def best(self) -> Measured | None:
        """The quickest layout that leaves the same bytes; None if none is quicker than the original by more than chance."""
        better = [one for one in self.tried if one.same and one.quicker >= GAIN]
        return max(better, key=lambda one: one.quicker, default=None)

    @property
    def fewest(self) -> Measured | None:
        """The quickest layout that leaves the same bytes with fewer wavefronts than the original; of those tried in the source, where all
        are about equally quick, that with the fewest."""
        fewer = [one for one in self.tried if one.same and one.wavefronts < self.original.wavefronts]
        if any(one.in_source for one in fewer):
            return min((one for one in fewer if one.in_source), key=lambda one: one.wavefronts)
        return max(fewer, key=lambda one: one.quicker, default=None)

    def _declaration(self, layout: Padded) -> str:
        assert self.declared is not None
        return self.declared.declaration(
            self.array.title.rpartition("::")[2], layout.pad * self.element_bytes // self.declared.element_bytes
        )

    @property
    def _limited_by(self) -> str:
        """What limited the modelled times of the original and of the best layout."""
        after = (self.best or self.original).limited_by
        if not self.original.limited_by or after == self.original.limited_by:
            return f" (limited by {after})" if after else ""
        return f" (limited by {self.original.limited_by} before and {after} after)"

    @property
    def verdict(self) -> str:
        """In a sentence."""
        if not self.tried:
            return f"No layout of {self.array.title} could be tried: {self.refused[0][1] if self.refused else 'its extents are not known'}."
        by = ", by the emulator's model" + self._limited_by if self.modelled else ""
        if not any(one.same for one in self.tried):
            return (
                f"Every layout of {self.array.title} that was tried gave results that differ from the original. This happens if the "
                "result depends on the order of threads."
            )
        if self.best is None:
            best = max(one.quicker for one in self.tried if one.same)
            least = f" by at least {percent(GAIN - 1)}; the best is {percent(best - 1)} faster" if best > 1 else ""
            begun = f"No layout of {self.array.title} that was tried ({len(self.tried)}) makes {self.kernel} faster{least}{by}."
            return f"{begun}{self._what_is_saved}"
        return (
            f"{self._named(self.best)} makes {self.kernel} {rounded(self.best.quicker)} times as fast{by}, with {self.best.wavefronts:,} "
            f"wavefronts instead of {self.original.wavefronts:,}."
        )

    def _named(self, one: Measured) -> str:
        return f"{one.layout} in the source" if one.in_source else str(one.layout)

    @property
    def _what_is_saved(self) -> str:
        """Which layout takes fewer wavefronts, and why that is not felt, as far as it is known."""
        found = self.fewest
        if found is None:
            return ""
        begun = f" {self._named(found)} takes {plural(found.wavefronts, 'wavefront')} instead of {self.original.wavefronts:,}"
        if found.in_source:
            speed = "the same speed" if rounded(found.quicker) == "1" else f"{rounded(found.quicker)} times the speed"
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
    """Try layouts of the arrays in shared memory of `call(*args)` that cost more wavefronts than they need; memory stays as it was.

    `shared` names one array, as for `relayout`; else all with bank conflicts are tried. `rows` and `columns` are its extents in elements;
    PTX does not know them, so without they are concluded from the steps between lanes, or guessed. `layouts` are tried instead of what is
    proposed. Returns what was tried of each array, those with the most conflicts first; nothing where there are none.
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
    """The same for a launch, which does not happen: what it would change is put back."""
    before = Snapshot(launch)
    with suspend_observers():
        try:
            trials = Trials(launch, before)
            return tuple(_tried(trials, array, rows, columns, layouts) for array in _worth_it(trials, shared))
        finally:
            before.restore()


def _worth_it(trials: Trials, shared: Shared) -> list[SharedArray]:
    """Arrays with more wavefronts than needed, the worst first; the one that was named, whatever it costs."""
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
    for layout in _different(proposed):
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
    idle = {} if rewritten is None else _idle(kernel, rewritten, _name(array, launch), element)
    times = trials.times({"": kernel, **{name: one for name, (_, one) in kernels.items()}, **idle})
    tried = []
    for name, (layout, changed) in kernels.items():
        one = trials.measured(layout, array, replace(launch, kernel=changed), (times[name], times[""]))
        alone = None
        if isinstance(layout, Padded) and name not in in_source and idle:
            alone = _layout_alone(times[""], times[name], times[_IDLE])
        tried.append(replace(one, in_source=name in in_source, layout_alone=alone))
    timed = replace(original, time_ns=statistics.median(times[""]), limited_by=trials.limited_by.get(kernel, ""))
    tried.sort(key=lambda one: -one.quicker)
    return Fix(
        kernel.title, kernel.target.name, kernel.target.modelled, array, element, timed, tuple(tried),
        tuple(refused.items()), (kernel.function.convention.language if kernel.function.convention else "") or CUDA, declared,
    )  # fmt: skip


def _idle(kernel: Kernel, padded: Padded, shared: str, element: int) -> dict[str, Kernel]:
    """The kernel rewritten for a padding by all banks, which leaves every element in its bank; nothing where there is no room for it."""
    banks = kernel.target.chip.banks
    whole = Padded(padded.rows, padded.columns, banks.banks * banks.bank_bytes // element)
    try:
        return {_IDLE: relayout(kernel, whole, shared=shared, element_bytes=element)}
    except (RelayoutError, LayoutError):
        return {}


def _layout_alone(original: Sequence[float], laid_out: Sequence[float], idle: Sequence[float]) -> float:
    """How many times quicker a launch would be if it took as much less time as a layout takes less than the same code without it."""
    return statistics.median(
        before / max(before - (same - after), 1e-9) for before, after, same in zip(original, laid_out, idle, strict=True)
    )


def _padded_in_source(trials: Trials, declared: DeclaredArray, layout: Layout, element: int) -> Kernel | None:
    """The kernel compiled from a source in which the array's rows are padded so. None for another layout, and where the result differs, as
    it does where the source computes places in the array by itself: then rewriting the compiled kernel has to do."""
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


def _different(layouts: Sequence[Layout]) -> Iterator[Layout]:
    """Those that do not put every element where an earlier one does."""
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
    """What arrays of one dimension are often padded by: an element behind as many as fill the banks once."""
    filling = chip.banks.banks * chip.banks.bank_bytes // element
    rows = nbytes // element // filling
    return [Padded(rows, filling, vector)] if rows > 1 and rows * vector * element <= room and filling % vector == 0 else []

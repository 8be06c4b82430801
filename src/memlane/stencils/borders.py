"""Generate border kernels that also store their results into the halo of a neighbour and raise its flag, so that they do the exchange.

Such a kernel is that of one step with a second destination for each field that it writes. The last of its blocks raises the flag after a
system-wide fence, as a put does (`targets/signals.cu`), so the border needs no put. This works where neighbours need only what the border
has just written: with one launch between two exchanges, in slabs.
"""

from __future__ import annotations

from collections.abc import Mapping

from memlane.stencils.cell import STORED, plain
from memlane.stencils.code import StepKernel
from memlane.stencils.decomposition import Margins
from memlane.stencils.direct import DirectKernel
from memlane.stencils.problem import Problem
from memlane.stencils.rule import Rule
from memlane.stencils.turns import Turn
from memlane.stencils.variant import Variant


class BorderKernel(DirectKernel):
    """Text of a kernel that makes one step of a border and sends its cells to a neighbour.

    After the parameters of a launch for a part, it takes for each field that it writes the memory of the neighbour, the plane at which
    that begins, and the planes to send; then two words for counting, and the flag.
    """

    def __init__(self, problem: Problem, rule: Rule, variant: Variant, *, fmad: bool = True) -> None:
        super().__init__(problem, rule, variant, fmad=fmad)
        self.name = f"{plain(rule.name)}_border"

    @classmethod
    def of(cls, kernel: StepKernel) -> BorderKernel:
        """Return the border kernel that computes the same step as a direct kernel."""
        return cls(kernel.problem, kernel.rule, kernel.variant, fmad=kernel.cell.fmad)

    @staticmethod
    def fits(kernel: StepKernel) -> bool:
        """Return whether a kernel of one step may have a border kernel: if it is that of the only rule, in slabs."""
        is_alone = len(kernel.problem.rules) == 1 and kernel.problem.cut == (0,) and kernel.problem.grid.dimensions > 1
        return is_alone and type(kernel) is DirectKernel and not kernel.reductions

    def _more_parameters(self) -> list[str]:
        given = [
            part
            for name in self.outputs
            for part in (f"{STORED[self.problem.dtype(name)]}* {plain(name)}_there", *(f"int {plain(name)}_{one}" for one in _PLANES))
        ]
        return [*given, "unsigned* counts", "unsigned* flag"]

    def _position(self) -> list[str]:
        return [*super()._position(), *(f"{plain(name)}_there -= {plain(name)}_origin * PLANE;" for name in self.outputs)]

    def _places(self, name: str) -> list[tuple[str, str]]:
        is_sent = f"z >= {plain(name)}_first && z < {plain(name)}_end"
        return [*super()._places(name), (f"{plain(name)}_there", f"{self._writes} && {is_sent}")]

    def _ending(self) -> list[str]:
        return _RAISING.splitlines()


_PLANES = ("origin", "first", "end")

_RAISING = """\
__syncthreads();
if (threadIdx.x == 0 && threadIdx.y == 0) {
    __threadfence_system();  // what the block stored is there before its ticket
    if (atomicAdd(counts, 1u) == gridDim.x * gridDim.y * gridDim.z - 1) {
        __threadfence_system();  // and what all blocks stored before the flag
        counts[0] = 0;
        counts[1] += 1;
        asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(flag), "r"(counts[1]) : "memory");
    }
}"""


def stores_borders(turn: Turn, wanted: Mapping[str, Margins]) -> dict[str, str]:
    """Map each field that neighbours get after a turn to the field that the launch writes. The map is empty where borders cannot store it
    themselves: because other fields or results of earlier launches are sent too, or because a neighbour sends nothing back."""
    (one, *more) = turn.launches
    up, down = turn.faces(wanted, 0)
    if more or not BorderKernel.fits(one.kernel) or not up or not down:
        return {}
    after = turn.names_after(1)
    written = {one.holders.get(name, name): name for name in one.kernel.outputs}
    sent = {name: after.get(name, name) for name, _ in (*up, *down)}
    return {name: written[holder] for name, holder in sent.items()} if set(sent.values()) <= written.keys() else {}

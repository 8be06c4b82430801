"""A kernel with two bodies: the instrumented one for the warps that are traced, and the original for the others.

    { body }        ->      decide; @chosen bra.uni $ml_traced; body; $ml_traced: { instrumented body; ret; }

The decision is the same in all threads of a warp, for it is made from the block's index, the number of the warp (the linear index of the
thread over 32: that is how hardware makes warps) and the SM. A warp that is not traced runs the original from its first instruction to its
exit, takes no slice and touches no memory but the constant words of windows. A decision that needs no number of the warp does not look at
its threads, so one for whole blocks is the cheapest. The original stands in front, right behind the decision: its warps are the many, and
fetch no instruction of the other body.

Registers and labels of the instrumented body are its own, by the scoping of braces; debug sections go on naming labels of the original.
Variables in shared and local memory stand in front, where both bodies see the same ones. Barriers meet across the bodies, because they
are known by their numbers.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from memlane.instrument.buffer import LAUNCH_DTYPE, offset
from memlane.instrument.probe import Braces, Draft, Original
from memlane.instrument.sampling import SPANS, WORDS_DTYPE, Sampling
from memlane.instrument.variables import LAUNCH, WINDOW
from memlane.ptx import Block, Directive, Function, Label, Variable, flatten_scopes, statements
from memlane.ptx.edit import behind

_OWN_SPACES = frozenset({"reg", "param"})
"""Of variables that each body has for itself."""


def with_plain_variables(kernel: Function) -> Function:
    """The kernel such that no inner braces of it declare variables in memory, which could not stand in front of both bodies."""
    assert kernel.body is not None
    inner = (one for block in kernel.body.statements if isinstance(block, Block) for one in block.walk())
    nested = any(map(_is_shared_by_both, inner))
    return flatten_scopes(kernel) if nested else kernel


def _is_shared_by_both(one: object) -> bool:
    return isinstance(one, Variable) and one.space not in _OWN_SPACES


def _is_place(one: object) -> bool:
    """Whether it says of which line of the source what follows is."""
    return isinstance(one, Directive) and one.text.startswith(".loc")


def halves(draft: Draft, sampling: Sampling, tagged: bool) -> Draft:
    """The kernel with its instrumented and its original body; the instrumented one must not run off its end."""
    original = draft.kernel.body
    assert original is not None
    label = f"${draft.prefix}traced"
    nodes = (
        *(one for one in original.statements if _is_shared_by_both(one)),
        *statements(_decide(draft.prefix, sampling, tagged, label)),
        Original(
            tuple(one for one in original.statements if not _is_shared_by_both(one)),
            tuple((site.id, site.instruction) for site in draft.sites),
        ),
        *behind(draft.kernel, "ret;"),
        *islice((one for one in original.walk() if _is_place(one)), 1),
        Label(label),
        Braces(tuple(one for one in draft.nodes if not _is_shared_by_both(one))),
    )
    return replace(draft, nodes=nodes)


def _decide(prefix: str, sampling: Sampling, tagged: bool, label: str) -> str:
    """PTX that goes to `label` if the warp is to be traced. `tagged`: a parameter tells the warps of a block."""
    r, windows, draw = f"%{prefix}", sampling.windows - {"executions"}, sampling.draw
    of_warps = "warps" in windows or (draw is not None and not draw.whole_blocks)
    numbers = [f"mov.u32 {r}in_sms, %smid;\n"] if "sms" in windows else []
    numbers += [_linear(r, "blocks", "%ctaid", "%nctaid")] if "blocks" in windows or draw else []
    numbers += [_linear(r, "warps", "%tid", "%ntid") + f"shr.u32 {r}in_warps, {r}in_warps, 5;\n"] if of_warps else []
    tests: dict[str, str] = {name: _inside(r, name) for name in ("blocks", "warps", "sms") if name in windows}
    if draw is not None:
        tests["drawn"] = ("" if draw.whole_blocks else _through_launch(r, tagged)) + draw.decide(
            f"{r}in_blocks", f"{r}is_drawn", (f"{r}x", f"{r}y")
        )
    first, *others = tests
    together = "".join(f"and.pred {r}chosen, {r}chosen, {r}is_{name};\n" for name in others)
    return f"""\
.reg .pred {r}chosen;
{{
.reg .b32 {r}in_blocks, {r}in_warps, {r}in_sms, {r}width, {r}height, {r}depth, {r}x, {r}y, {r}word;
.reg .pred {", ".join(f"{r}is_{name}" for name in tests)};
{"".join(numbers)}{"".join(tests.values())}mov.pred {r}chosen, {r}is_{first};
{together}{_uniform(r) if of_warps or "sms" in windows else ""}}}
@{r}chosen bra.uni {label};
"""


def _uniform(r: str) -> str:
    """The decision again, of which the assembler knows that all lanes make the same: it then reads what the traced body needs behind it,
    and not for all warps in front of it."""
    return f"activemask.b32 {r}x;\nvote.sync.any.pred {r}chosen, {r}chosen, {r}x;\n"


def _linear(r: str, name: str, index: str, extents: str) -> str:
    """The linear number of the block in its grid, or of the thread in its block; leaves the first two extents in `width` and `height`."""
    return f"""\
mov.u32 {r}x, {index}.x;
mov.u32 {r}y, {index}.y;
mov.u32 {r}in_{name}, {index}.z;
mov.u32 {r}width, {extents}.x;
mov.u32 {r}height, {extents}.y;
mad.lo.u32 {r}in_{name}, {r}in_{name}, {r}height, {r}y;
mad.lo.u32 {r}in_{name}, {r}in_{name}, {r}width, {r}x;
"""


def _inside(r: str, name: str) -> str:
    """Whether the number lies in one of the windows."""
    lines = []
    for number in range(SPANS):
        at = offset(WORDS_DTYPE, name) + 8 * number
        condition = (
            f"setp.lt.u32 {r}is_{name}, {r}x, {r}word" if number == 0 else f"setp.lt.or.u32 {r}is_{name}, {r}x, {r}word, {r}is_{name}"
        )
        lines.append(f"{_word(r, at)}sub.u32 {r}x, {r}in_{name}, {r}word;\n{_word(r, at + 4)}{condition};\n")
    return "".join(lines)


def _through_launch(r: str, tagged: bool) -> str:
    """Behind the number of the warp in its block, whose extents are still there: that in the launch, in `in_blocks`."""
    if tagged:
        width = f"ld.param.u32 {r}width, [{LAUNCH}+{offset(LAUNCH_DTYPE, 'warps')}];\n"
    else:
        width = f"""\
mov.u32 {r}depth, %ntid.z;
mul.lo.u32 {r}width, {r}width, {r}height;
mad.lo.u32 {r}width, {r}width, {r}depth, 31;
shr.u32 {r}width, {r}width, 5;
"""
    return f"{width}mad.lo.u32 {r}in_blocks, {r}in_blocks, {r}width, {r}in_warps;\n"


def _word(r: str, at: int) -> str:
    return f"ld.const.u32 {r}word, [{WINDOW}+{at}];\n"

"""Combine two bodies into one kernel: the instrumented one for the traced warps, and the original for the others.

    { body }        ->      decide; @chosen bra.uni $ml_traced; body; $ml_traced: { instrumented body; ret; }

All threads of a warp decide alike, because the decision depends only on the block index, the warp number (linear thread index / 32, as
hardware forms warps) and the SM. An untraced warp runs the original from its first instruction to its exit, takes no slice and reads no
memory except the constant words of windows. A decision that needs no warp number does not read the thread index, so sampling whole blocks
is the cheapest. The original body comes first, right after the decision: most warps run it, and they fetch no instruction of the other.

The instrumented body has its own registers and labels, by the scoping of braces; debug sections keep referring to labels of the original.
Variables in shared and local memory are declared before both bodies, which share them. Barriers work across the bodies, because they are
identified by number.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from memlane.instrument.buffer import LAUNCH_DTYPE, offset
from memlane.instrument.probe import Draft, NestedBlock, OriginalBody
from memlane.instrument.sampling import SPANS, WORDS_DTYPE, Sampling
from memlane.instrument.variables import LAUNCH, WINDOW
from memlane.ptx import Block, Directive, Function, Label, Variable, flatten_scopes, statements
from memlane.ptx.edit import behind

_OWN_SPACES = frozenset({"reg", "param"})
"""State spaces of variables that each body declares for itself."""


def without_nested_variables(kernel: Function) -> Function:
    """Return the kernel without memory variables in nested scopes, which could not be declared before both bodies."""
    assert kernel.body is not None
    inner = (one for block in kernel.body.statements if isinstance(block, Block) for one in block.walk())
    nested = any(map(_is_shared_by_both, inner))
    return flatten_scopes(kernel) if nested else kernel


def _is_shared_by_both(one: object) -> bool:
    """Return whether a statement declares a variable that both bodies share."""
    return isinstance(one, Variable) and one.space not in _OWN_SPACES


def _is_location(one: object) -> bool:
    """Return whether a statement is a `.loc` directive."""
    return isinstance(one, Directive) and one.text.startswith(".loc")


def dispatch_by_warp(draft: Draft, sampling: Sampling, tagged: bool) -> Draft:
    """Combine the instrumented and the original body into one kernel that branches per warp. The instrumented body must not run off its
    end."""
    original = draft.kernel.body
    assert original is not None
    label = f"${draft.prefix}traced"
    nodes = (
        *(one for one in original.statements if _is_shared_by_both(one)),
        *statements(_decide(draft.prefix, sampling, tagged, label)),
        OriginalBody(
            tuple(one for one in original.statements if not _is_shared_by_both(one)),
            tuple((site.id, site.instruction) for site in draft.sites),
        ),
        *behind(draft.kernel, "ret;"),
        *islice((one for one in original.walk() if _is_location(one)), 1),
        Label(label),
        NestedBlock(tuple(one for one in draft.nodes if not _is_shared_by_both(one))),
    )
    return replace(draft, nodes=nodes)


def _decide(prefix: str, sampling: Sampling, tagged: bool, label: str) -> str:
    """Return PTX that branches to `label` if the warp is traced. `tagged`: a kernel parameter holds the number of warps per block."""
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
    """Return PTX that makes the decision warp-uniform for ptxas, which then loads what the traced body needs inside it, not for all
    warps."""
    return f"activemask.b32 {r}x;\nvote.sync.any.pred {r}chosen, {r}chosen, {r}x;\n"


def _linear(r: str, name: str, index: str, extents: str) -> str:
    """Return PTX for the linear number of the block in its grid or of the thread in its block; leaves the first two extents in `width` and
    `height`."""
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
    """Return PTX that tests whether a number lies in one of the windows."""
    lines = []
    for number in range(SPANS):
        at = offset(WORDS_DTYPE, name) + 8 * number
        condition = (
            f"setp.lt.u32 {r}is_{name}, {r}x, {r}word" if number == 0 else f"setp.lt.or.u32 {r}is_{name}, {r}x, {r}word, {r}is_{name}"
        )
        lines.append(f"{_word(r, at)}sub.u32 {r}x, {r}in_{name}, {r}word;\n{_word(r, at + 4)}{condition};\n")
    return "".join(lines)


def _through_launch(r: str, tagged: bool) -> str:
    """Return PTX that computes the number of the warp in the launch, in `in_blocks`. The extents of the block must still be in `width`,
    `height`."""
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
    """Return PTX that loads a word of the windows."""
    return f"ld.const.u32 {r}word, [{WINDOW}+{at}];\n"

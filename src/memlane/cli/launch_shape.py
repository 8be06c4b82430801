"""Choose a grid, a block and sizes for a kernel from its text: how many elements its threads and its addresses count.

Each integer register has a degree: 1 for an extent such as `n`, 2 for `rows * cols`, and for an index the degree of the extent that bounds
it. So `if (i < rows * cols)` asks for as many threads as a matrix has elements, and an address `(z * ny + y) * nx + x` for arrays of three
extents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from memlane.ptx import Immediate, Instruction, Register, Special, memory_accesses, registers_in, values_read, values_written

ELEMENTS = 1 << 20
"""Elements of each array."""
SIDES = {1: 1 << 10, 2: 1 << 8, 3: 1 << 6, 4: 1 << 5}
"""Value of each extent, by how many of them are multiplied: arrays of `ELEMENTS` hold that many elements, and a loop over an extent in each
thread ends within seconds on the emulator."""
_MANY, _SIDE_OF_MANY = 3, 1 << 8
"""From so many extents on they are no more than this: each may be the length of a loop inside another, in every thread."""
_SMALLEST_SIDE = 1 << 4
_BLOCKS = {1: (256,), 2: (16, 16), 3: (8, 8, 8)}
"""Block by the number of its dimensions."""
_SMALL_BLOCK = (64,)
"""Block of one dimension where `_BLOCKS` would make a single block."""
_MOST_THREADS = 1 << 10
_HIGHEST = 5
"""Highest degree that is told apart."""
_ROUNDS = 40
_AXES = "xyz"
_SUMS = ("add", "sub", "min", "max", "and", "or", "xor", "selp", "mov", "cvt", "shl", "shr", "neg", "abs", "bfe", "bfi", "prmt", "shf")
"""Opcodes whose result is as large as the largest operand."""


@dataclass(frozen=True)
class LaunchShape:
    """A launch that covers the extents of a kernel."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    side: int
    """Value for each integer argument."""


def launch_shape(instructions: Sequence[Instruction], extents: Iterable[str], block: tuple[int, ...] = ()) -> LaunchShape:
    """Return a grid and a block that cover a kernel, with the size that its integer arguments should have.

    `instructions` are those of the kernel with its functions inlined; `extents` are the PTX names of its integer parameters. `block`: the
    block, if it is known.
    """
    found = _Degrees(instructions, frozenset(extents))
    highest = max([1, len(found.block_axes), *(found.degree.get(name, 0) for name in found.addresses)])
    side = SIDES.get(highest, _SMALLEST_SIDE)
    if len(found.extents) >= _MANY:
        side = min(side, _SIDE_OF_MANY)
    if not block:
        axes = max((number for number, axis in enumerate(_AXES, 1) if f"%tid.{axis}" in found.read), default=1)
        width = found.widths.get("x", 0)
        block = (width,) if axes == 1 and 0 < width <= _MOST_THREADS else _BLOCKS[axes]
        if block == _BLOCKS[1] and "x" in found.thread_axes and side ** found.indices.get("x", 1) <= block[0]:
            block = _SMALL_BLOCK
    grid = []
    for axis, threads in zip(_AXES, (*block, 1, 1), strict=False):
        count = side ** max(1, found.indices.get(axis, 1)) if axis in found.block_axes else 1
        grid.append(-(-min(count, ELEMENTS) // (threads if axis in found.thread_axes else 1)))
    while len(grid) > 1 and grid[-1] == 1:
        grid.pop()
    return LaunchShape(tuple(grid), block, side)


@dataclass
class _Degrees:
    """Degrees of a kernel's integer registers, by repeated passes over its instructions until nothing changes."""

    instructions: Sequence[Instruction]
    extents: frozenset[str]
    degree: dict[str, int] = field(default_factory=dict)
    constant: set[str] = field(default_factory=set)
    """Registers that depend on the arguments alone."""
    axis: dict[str, str] = field(default_factory=dict)
    """Axis of a register that is an index of the thread along it, over all blocks."""
    parts: dict[str, set[str]] = field(default_factory=dict)
    """Special registers from which a register is made by additions and products, such as `%ctaid.x`."""
    thread_axes: set[str] = field(default_factory=set)
    """Axes along which the block's index is multiplied by its threads, so that each thread has an index of its own."""
    widths: dict[str, int] = field(default_factory=dict)
    """Constant threads per block along an axis, as in `blockIdx.x * 128 + threadIdx.x`."""
    factor: dict[str, int] = field(default_factory=dict)
    """Constant by which a register multiplies the index of the block."""

    def __post_init__(self) -> None:
        self.read = frozenset(operand.name for one in self.instructions for operand in one.operands if isinstance(operand, Special))
        self.addresses = frozenset(
            name
            for one in self.instructions
            for access in memory_accesses(one)
            if access.space != "param"
            for name in registers_in(access.address)
        )
        for _ in range(_ROUNDS):
            before = dict(self.degree)
            for one in self.instructions:
                self._follow(one)
            if self.degree == before:
                break

    @property
    def indices(self) -> Mapping[str, int]:
        """Highest degree of the thread's index along each axis that has one."""
        found: dict[str, int] = {}
        for name, axis in self.axis.items():
            found[axis] = max(found.get(axis, 0), self.degree.get(name, 1))
        return found

    @property
    def block_axes(self) -> list[str]:
        """Axes along which blocks have different indices."""
        return [axis for axis in _AXES if f"%ctaid.{axis}" in self.read]

    def _follow(self, one: Instruction) -> None:
        written = values_written(one)
        read = [name for name in values_read(one) if name in self.degree]
        if one.opcode == "setp":
            self._compare(one)
        elif one.opcode == "ld" and one.form.addresses.get("a") == "param":
            if self._is_extent(one):
                self._raise(written, 1)
                self.constant.update(written)
        elif one.opcode == "mov" and isinstance(special := one.operand("a"), Special):
            self._special(written, special.name)
        elif one.opcode in ("mul", "mad"):
            self._multiply(one, written)
        elif one.opcode in ("div", "rem"):
            self._divide(one, written)
        elif one.opcode in _SUMS and read:
            self._add(one, written, read)

    def _is_extent(self, one: Instruction) -> bool:
        return any(getattr(getattr(operand, "base", None), "name", "") in self.extents for operand in one.operands)

    def _special(self, written: Sequence[str], name: str) -> None:
        kind, _, axis = name.removeprefix("%").partition(".")
        if axis and kind in ("tid", "ctaid"):
            self._raise(written, 1)
            self._join(written, {name})
        elif axis and kind in ("ntid", "nctaid"):
            self._raise(written, 0)
            self._join(written, {name})

    def _multiply(self, one: Instruction, written: Sequence[str]) -> None:
        factors, added = [one.operand("a"), one.operand("b")], one.operand("c")
        product = sum(self._of(operand) for operand in factors)
        self._raise(written, max(product, self._of(added)))
        self._find_index([*factors], [added] if added is not None else [], written)
        self._keep_constant(one, written)

    def _add(self, one: Instruction, written: Sequence[str], read: Sequence[str]) -> None:
        degree = max(self.degree[name] for name in read)
        if one.opcode in ("add", "sub") and set(written) & set(read):
            # The step of a loop counter: it is made as often as a loop turns, once for each of an extent.
            steps = [self.degree[name] for name in read if name not in written]
            degree = max([degree, *(step + 1 for step in steps if step)]) if not self._is_stride(read) else degree
        self._raise(written, degree)
        if one.opcode == "shl" and isinstance(places := one.operand("b"), Immediate):
            self._find_index([one.operand("a"), Immediate(1 << min(places.value, 31))], [], written)
        else:
            self._find_index([], [one.operand("a"), one.operand("b")] if one.opcode == "add" else [one.operand("a")], written)
        self._keep_constant(one, written)

    def _is_stride(self, read: Sequence[str]) -> bool:
        """Return whether a loop goes on by the threads of a block or of the grid."""
        return any(part.startswith(("%ntid", "%nctaid")) for name in read for part in self.parts.get(name, ()))

    def _divide(self, one: Instruction, written: Sequence[str]) -> None:
        whole, by = one.operand("a"), self._of(one.operand("b"))
        self._raise(written, by if one.opcode == "rem" else max(1, self._of(whole) - by) if by else self._of(whole))
        if isinstance(whole, Register) and self.axis.get(whole.name) and by:
            # An index that is taken apart runs over all its parts.
            quotient = max((self.degree.get(name, 1) for name in written), default=1) if one.opcode == "div" else 1
            self._raise([whole.name], by + quotient)

    def _compare(self, one: Instruction) -> None:
        """Raise an index that is compared with something larger, which bounds it."""
        sides = [operand for operand in (one.operand("a"), one.operand("b")) if isinstance(operand, Register)]
        for index, bound in (sides, sides[::-1]) if len(sides) == 2 else ():
            if bound.name in self.constant and index.name not in self.constant and index.name in self.degree:
                self._raise([index.name], self._of(bound))

    def _find_index(self, factors: Sequence[object], added: Sequence[object], written: Sequence[str]) -> None:
        """Follow the parts of an index: `ctaid * ntid`, then with `tid` added, in one instruction or in several."""
        self._find_thread_axis(factors)
        registers = [operand.name for operand in (*factors, *added) if isinstance(operand, Register)]
        parts = {part for name in registers for part in self.parts.get(name, ())}
        if not parts or len({part.rpartition(".")[2] for part in parts}) > 1 or any(name not in self.parts for name in registers):
            return
        axis = next(iter(parts)).rpartition(".")[2]
        constants = [operand.value for operand in factors if isinstance(operand, Immediate)]
        if constants and parts == {f"%ctaid.{axis}"}:
            self.factor.update(dict.fromkeys(written, constants[0]))
        scaled = [self.factor[operand.name] for operand in added if isinstance(operand, Register) and operand.name in self.factor]
        if {f"%ctaid.{axis}", f"%tid.{axis}"} <= parts and (f"%ntid.{axis}" in parts or constants or scaled):
            self.axis.update(dict.fromkeys(written, axis))
            self.thread_axes.add(axis)
            if f"%ntid.{axis}" not in parts:
                self.widths.setdefault(axis, (scaled or constants)[0])
        self._join(written, parts)

    def _find_thread_axis(self, factors: Sequence[object]) -> None:
        """Note the axis of a product of the block's index and its threads."""
        parts = [self.parts.get(operand.name, set()) for operand in factors if isinstance(operand, Register)]
        for axis in _AXES:
            if any(f"%ctaid.{axis}" in one for one in parts) and any(f"%ntid.{axis}" in one for one in parts):
                self.thread_axes.add(axis)

    def _keep_constant(self, one: Instruction, written: Sequence[str]) -> None:
        read = list(values_read(one))
        if read and all(name in self.constant for name in read):
            self.constant.update(written)

    def _of(self, operand: object) -> int:
        return self.degree.get(operand.name, 0) if isinstance(operand, Register) else 0

    def _raise(self, names: Iterable[str], degree: int) -> None:
        for name in names:
            self.degree[name] = max(self.degree.get(name, 0), min(degree, _HIGHEST))

    def _join(self, names: Iterable[str], parts: Iterable[str]) -> None:
        for name in names:
            self.parts.setdefault(name, set()).update(parts)

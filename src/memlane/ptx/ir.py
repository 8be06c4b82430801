"""Represent a PTX module as data.

The tree is immutable; a pass builds new nodes with `dataclasses.replace`. Text that memlane does not model (debug sections, unknown
directives, pragmas) is kept as `Directive` in its place, so that printing a module loses nothing.

    Module
      Directive | Variable | Function ...            in the order of the text
        Function.body : Block
          RegisterDecl | Variable | Label | Instruction | Directive | Block ...

Positions (`span`) are ignored in comparison: a module equals itself printed and parsed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property

from memlane.ptx.convention import Convention
from memlane.ptx.demangle import demangle
from memlane.ptx.forms import Form
from memlane.ptx.location import Location, file_of
from memlane.ptx.types import SCALAR_TYPES
from memlane.source import Span

# -- operands ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual register such as `%r1`, or `alo` inside an inline-assembly scope. `negated` is the `!` before a predicate,
    or the `-` before a source of `vmad`."""

    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as `%tid.x`, `%clock64`, or the constant `WARP_SZ`."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal. Integers hold a value in -2^63 .. 2^64-1; floating-point literals hold the bits.

    `kind` is `int`, `f32` (`0f3F800000`) or `f64` (`0d...` and decimal literals); for the float kinds `value` is the bit pattern.
    """

    value: int
    kind: str = "int"
    text: str = field(default="", compare=False)
    """Spelling in the source; printed unchanged."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """The name of a variable, parameter, label or function, with a constant offset in bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`: a memory operand. `base` is a register, a symbol, or an immediate absolute address."""

    base: Register | Symbol | Immediate
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, c, d}`: a vector operand."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: two destinations, the second a predicate."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class TextureAddress:
    """`[tex, {x, y}]` or `[tex, sampler, {x, y}]`: the memory operand of texture and surface instructions."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Arguments:
    """`(a, b)`: a parenthesised list of a `call`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a destination whose value is discarded."""


Operand = Register | Special | Immediate | Symbol | Address | Vector | Pair | TextureAddress | Arguments | Sink


def elements(operand: Operand | None) -> tuple[Operand, ...]:
    """Return the elements of a vector operand; any other operand is its own element, and None has none."""
    if operand is None:
        return ()
    return operand.items if isinstance(operand, Vector) else (operand,)


# -- statements ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guard:
    """`@p` or `@!p` before an instruction."""

    register: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, resolved against the instruction table.

    `form` names the row of the table and what each of its slots matched: for `ld.global.nc.f32 %f1, [%rd2+4]` the opcode is `ld`,
    `slot("ss")` is `global`, `slot("type")` is `f32`, and `operand("a")` is the address.
    """

    opcode: str
    modifiers: tuple[str, ...]
    """Dotted parts as written, without the dots: `("global", "nc", "f32")`."""
    operands: tuple[Operand, ...]
    form: Form = field(compare=False, repr=False)
    guard: Guard | None = None
    location: Location | None = None
    span: Span | None = field(default=None, compare=False, repr=False)
    known_registers: tuple[tuple[str, ...], tuple[str, ...]] | None = field(default=None, init=False, compare=False, repr=False)
    """Cache of the registers that it reads and writes (`memlane.ptx.registers`); None until first used."""

    @property
    def name(self) -> str:
        """Full opcode as written, for example `ld.global.nc.f32`."""
        return ".".join((self.opcode, *self.modifiers))

    def slot(self, name: str) -> str | None:
        """Return the word that the slot `name` of the form matched, without the dot; None if it was left out."""
        return self.form.slots.get(name)

    def has(self, modifier: str) -> bool:
        """Return whether the modifier was written, for example `has("volatile")`."""
        return modifier in self.modifiers

    def operand(self, name: str) -> Operand | None:
        """Return the operand that the manual calls `name`; None if it was left out."""
        index = self.form.operands.get(name)
        return None if index is None or index >= len(self.operands) else self.operands[index]


@dataclass(frozen=True, slots=True)
class Label:
    """`name:`, a branch target."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RegisterDecl:
    """`.reg .f32 %f<12>;` (name `%f`, count 12) or `.reg .pred p, q;` (two declarations with count None)."""

    type: str
    name: str
    count: int | None = None
    vector: int = 1


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in a state space, or a formal parameter.

    `.visible .global .align 8 .u64 table[16] = {1, 2};` has space `global`, type `u64`, align 8, shape (16,), and `initial` holding the
    text of its initialiser. An array without a length (`.extern .shared .b8 s[];`) has shape (0,).
    """

    space: str
    type: str
    name: str
    shape: tuple[int, ...] | None = None
    align: int | None = None
    vector: int = 1
    linkage: tuple[str, ...] = ()
    """`visible`, `extern`, `weak`, `common`, in the order written."""
    initial: str | None = None
    attributes: str = ""
    """Unmodelled text between type and name, for example `.ptr .global .align 16`."""
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def element_bytes(self) -> int:
        from_type = SCALAR_TYPES.get(self.type)
        return (from_type.nbytes if from_type else 8) * self.vector

    @property
    def nbytes(self) -> int:
        """Size in bytes; 0 for an array without a length."""
        size = self.element_bytes
        for extent in self.shape or ():
            size *= extent
        return size

    @property
    def alignment(self) -> int:
        """Alignment in bytes: the `.align`, else the size of an element."""
        return self.align or self.element_bytes


@dataclass(frozen=True, slots=True)
class Directive:
    """Text that passes through unchanged: `.pragma`, `.file`, `.section` with its body, and everything else that is not modelled.

    `.loc` too is kept here as written; the instructions after it carry it as `location`.
    """

    text: str


@dataclass(frozen=True)
class Block:
    """The statements between two braces; names declared in it are visible only inside it."""

    statements: tuple[Statement, ...]

    def instructions(self) -> Iterator[Instruction]:
        """Yield every instruction in the order of the text, those of inner blocks included."""
        for statement in self.statements:
            if isinstance(statement, Instruction):
                yield statement
            elif isinstance(statement, Block):
                yield from statement.instructions()

    def walk(self) -> Iterator[Statement]:
        """Yield every statement in the order of the text; inner blocks are replaced by their statements."""
        for statement in self.statements:
            if isinstance(statement, Block):
                yield from statement.walk()
            else:
                yield statement


Statement = Instruction | Label | RegisterDecl | Variable | Directive | Block


def with_instructions(one: Statement, change: Callable[[Instruction], Instruction]) -> Statement:
    """Return a statement with `change` applied to it, or to every instruction in it if it is a block; others are returned unchanged."""
    if isinstance(one, Block):
        return Block(tuple(with_instructions(inner, change) for inner in one.statements))
    return change(one) if isinstance(one, Instruction) else one


# -- module --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """An `.entry` (kernel) or a `.func`. `body` is None for a declaration."""

    name: str
    is_entry: bool
    params: tuple[Variable, ...]
    results: tuple[Variable, ...]
    body: Block | None
    linkage: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    """Performance directives between the head and the body as written, for example `.maxntid 256, 1, 1`."""
    span: Span | None = field(default=None, compare=False, repr=False)
    convention: Convention | None = field(default=None, compare=False, repr=False)
    """Calling convention, where the parameters alone do not tell it."""

    def instructions(self) -> Iterator[Instruction]:
        """Return every instruction of the body in the order of the text; none for a declaration."""
        return iter(()) if self.body is None else self.body.instructions()

    def walk(self) -> Iterator[Statement]:
        """Return every statement of the body, as `Block.walk` yields them; none for a declaration."""
        return iter(()) if self.body is None else self.body.walk()

    @property
    def title(self) -> str:
        """Name for display: as the programmer wrote it, with parameters, if it is mangled C++."""
        return demangle(self.name)

    def extents(self, directive: str) -> tuple[int, int, int] | None:
        """Return the three numbers of a performance directive such as `.maxntid` or `.reqntid`; None if it is absent."""
        for attribute in self.attributes:
            name, _, rest = attribute.partition(" ")
            if name == directive:
                x, y, z = ([int(number) for number in rest.split(",")] + [1, 1])[:3]
                return x, y, z
        return None


Item = Directive | Variable | Function


@dataclass(frozen=True)
class Module:
    """A PTX module as an immutable tree. `ml.parse`, `ml.cuda`, `ml.numba` and `ml.triton` make one.

    `target.load(module)` makes its kernels callable, `memlane.ptx.print_module(module)` returns its text, and `kernels` has its kernels by
    their names in PTX. `version` is (9, 0) for `.version 9.0`; `target` is the list behind `.target`, the architecture first.
    """

    version: tuple[int, int]
    target: tuple[str, ...]
    address_size: int
    items: tuple[Item, ...]
    name: str = field(default="<ptx>", compare=False)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Known text of the user's source files, by the name that `.file` gives them; reports quote it."""
    aliases: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """PTX names of kernels by the names under which they were requested, such as `reduce<float, SUM>`."""
    recipe: object = field(default=None, compare=False, repr=False)
    """Data with which the front end can compile a changed source again; None where there is no source."""

    left_out: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Reason, as a sentence, why the front end left out a kernel of the source, by its name."""

    objects: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    """Machine code that this module calls, by file name: it runs only on a GPU, where a linker adds it."""

    def __repr__(self) -> str:
        return f"<Module: {self}>"

    def __str__(self) -> str:
        """Return a summary in one line; `print_module` returns the text."""
        kernels = ", ".join(function.title for function in self.kernels.values()) or "no kernel"
        return f"{self.name}; {kernels}; PTX {'.'.join(map(str, self.version))} for {', '.join(self.target)}"

    def __getstate__(self) -> dict[str, object]:
        """Return the fields only: cached analyses are left out when a module is pickled or copied."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Functions with a body, by name."""
        return {item.name: item for item in self.items if isinstance(item, Function) and item.body is not None}

    def users_location(self, location: Location) -> Location:
        """Return the place in the user's text: for code of a library header, or at line 0 (merged from several lines), the nearest call in
        the user's files."""
        own: list[Location] = []
        at: Location | None = location
        while at is not None:
            own += [at] if self.files.get(at.file) in self.sources else []
            at = at.inlined_into
        return next((one for one in own if one.line), own[0] if own else location)

    @property
    def kernels(self) -> dict[str, Function]:
        """Kernels (`.entry` functions), by name."""
        return {name: function for name, function in self.functions.items() if function.is_entry}

    @cached_property
    def variables(self) -> dict[str, Variable]:
        """Module-scope variables, by name."""
        found: dict[str, Variable] = {}
        for item in self.items:
            if isinstance(item, Variable) and ("extern" not in item.linkage or item.name not in found):
                found[item.name] = item
        return found

    @cached_property
    def files(self) -> dict[int, str]:
        """File names by the number that `.loc` uses."""
        found = (file_of(item.text) for item in self.items if isinstance(item, Directive))
        return dict(file for file in found if file is not None)

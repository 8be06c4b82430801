"""PTX text to a `Module`.

The grammar of statements is tiny and written out here; what instructions look like is the business of the table. Whatever is a directive
and not modelled is kept as text.
"""

from __future__ import annotations

from memlane.errors import PtxTypeError, UnsupportedPtx
from memlane.ptx.declarations import (
    LINKAGE,
    SPACE_DIRECTIVES,
    parse_linkage,
    parse_registers,
    parse_variable,
    parse_variables,
    parse_whole,
    skip_balanced,
)
from memlane.ptx.forms import ADDRESS, ARGUMENTS, COORDINATES, VALUE, Form, NoMatch
from memlane.ptx.ir import (
    Address,
    Arguments,
    Block,
    Directive,
    Function,
    Guard,
    Instruction,
    Item,
    Label,
    Location,
    Module,
    Operand,
    Register,
    Statement,
    TextureAddress,
    Variable,
)
from memlane.ptx.lexer import DIRECTIVE, END, NUMBER, STRING, WORD, Cursor
from memlane.ptx.operands import Names, parse_operand
from memlane.ptx.ops import TABLE
from memlane.source import Source, Span, shortened

_SHAPES: dict[type, str] = {Address: ADDRESS, TextureAddress: COORDINATES, Arguments: ARGUMENTS}
_LONGEST_VERSION = 9
_EXTENTS = frozenset({".maxntid", ".reqntid", ".reqnctapercluster", ".maxclusterrank"})
"""Performance directives that have one to three numbers, which a launch is compared with."""
_ENDS_WITH_SEMICOLON = frozenset({".pragma", ".alias", ".branchtargets", ".calltargets", ".callprototype"})


def parse(text: str, name: str = "<ptx>") -> Module:
    """Read a module from its text. `name` stands in error messages, usually the name of the file.

    module = ml.parse(Path("kernel.ptx").read_text(), "kernel.ptx")

    Raises `PtxSyntaxError`, `UnsupportedPtx` for an instruction that is not in the table, and `PtxTypeError` for one with the wrong
    operands; each points at its place.
    """
    if not isinstance(text, str):
        raise TypeError(f"parse takes the text of PTX, as Path(...).read_text() gives it; got a {type(text).__name__}")
    parser = _Parser(Source(name, text))
    try:
        return parser.module()
    except RecursionError:
        raise parser.cursor.error("braces or brackets are nested too deeply") from None


INSERTED = "<statements>"
"""What the text is called that a pass inserts."""


def parse_statements(text: str, name: str = INSERTED) -> tuple[Statement, ...]:
    """Read statements as they stand in a function body, without the braces around them. Raises as `parse` does."""
    parser = _Parser(Source(name, text))
    statements = parser.statements()
    if parser.cursor.kind != END:
        raise parser.cursor.error(f"expected a statement, found {parser.cursor.found()}")
    return statements


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, source: Source) -> None:
        self.cursor = Cursor(source)
        self.names = Names()
        self.location: Location | None = None
        self.locations: dict[tuple[int, int, int], Location] = {}
        self.forms: dict[tuple[object, ...], tuple[str, tuple[str, ...], Form]] = {}

    # -- module --------------------------------------------------------------------------------------------------------------------

    def module(self) -> Module:
        cursor = self.cursor
        cursor.expect(".version", "at the start of a module")
        version = cursor.expect_kind(NUMBER, "a version such as `9.0`")
        major, _, minor = version.partition(".")
        if not (major + minor).isdecimal() or len(version) > _LONGEST_VERSION:
            raise cursor.error(f"expected a version such as `9.0`, found `{shortened(version)}`", cursor.span(cursor.starts[cursor.at - 1]))
        cursor.expect(".target", "behind `.version`")
        target = [cursor.expect_kind(WORD, "an architecture such as `sm_90`")]
        while cursor.accept(","):
            target.append(cursor.expect_kind(WORD, "an option of `.target`"))
        # 64 bits where nothing is said: the assemblers of today know no other.
        address_size = parse_whole(cursor, "32 or 64") if cursor.accept(".address_size") else 64
        items: list[Item] = []
        while cursor.kind != END:
            items.extend(self.items())
        return Module((int(major), int(minor or 0)), tuple(target), address_size, tuple(items), cursor.source.name)

    def items(self) -> tuple[Item, ...]:
        """What stands next at module scope; a declaration may hold several variables."""
        cursor = self.cursor
        first = cursor.at
        if cursor.accept(";"):
            return ()
        linkage = parse_linkage(cursor) if cursor.text in LINKAGE else ()
        if cursor.text in (".entry", ".func"):
            return (self.function(linkage, first),)
        if cursor.text in SPACE_DIRECTIVES:
            variables = parse_variables(cursor, linkage)
            for variable in variables:
                self.names.declare_symbol(variable.name)
            return variables
        if (cursor.kind != DIRECTIVE and cursor.text != "@") or linkage:
            raise cursor.error(f"expected a directive, a variable or a function, found {cursor.found()}")
        return (self.directive(),)

    def directive(self) -> Directive:
        """A directive kept as text: up to its `;` or `}`, or, if it has neither, to the end of its line."""
        cursor = self.cursor
        first = cursor.at
        name = cursor.next()
        if name == ".file":
            parse_whole(cursor, "the number of a file")
            cursor.expect_kind(STRING, "the name of a file in quotes")
        while cursor.kind != END and cursor.text != "}":
            if cursor.starts_line() and cursor.text != "{" and name not in _ENDS_WITH_SEMICOLON:
                break
            if cursor.accept("{"):
                skip_balanced(cursor, "}")
                break
            if cursor.next() == ";":
                break
        if name in _ENDS_WITH_SEMICOLON and cursor.texts[cursor.at - 1] != ";":
            raise cursor.error(f"expected `;` at the end of `{name}`, found {cursor.found()}")
        return Directive(cursor.slice(first))

    # -- functions -----------------------------------------------------------------------------------------------------------------

    def function(self, linkage: tuple[str, ...], first: int) -> Function:
        cursor = self.cursor
        is_entry = cursor.next() == ".entry"
        self.names.enter()
        self.location = None
        results = self.parameters() if cursor.text == "(" else ()
        name = cursor.expect_kind(WORD, "the name of a function")
        params = self.parameters() if cursor.text == "(" else ()
        attributes = self.attributes()
        span = cursor.span(cursor.starts[first])
        body = None
        if cursor.accept("{"):
            body = Block(self.statements())
            cursor.expect("}", f"at the end of `{name}`")
        else:
            cursor.expect(";", f"or a body in braces behind the head of `{name}`")
        self.names.leave()
        return Function(name, is_entry, params, results, body, linkage, attributes, span=span)

    def parameters(self) -> tuple[Variable, ...]:
        cursor = self.cursor
        cursor.at += 1
        params: list[Variable] = []
        if cursor.accept(")"):
            return ()
        while True:
            param = parse_variable(cursor)
            params.append(param)
            if param.space == "reg":
                self.names.declare_register(param.name, None)
            else:
                self.names.declare_symbol(param.name)
            if cursor.accept(")"):
                return tuple(params)
            cursor.expect(",", "or `)` behind a parameter")

    def attributes(self) -> tuple[str, ...]:
        """`.maxntid 256, 1, 1` and the like, each as one text."""
        cursor = self.cursor
        found: list[str] = []
        while cursor.kind == DIRECTIVE:
            if cursor.text in _EXTENTS:
                found.append(self.extents())
                continue
            first = cursor.at
            is_pragma = cursor.next() == ".pragma"
            while cursor.kind not in (DIRECTIVE, END) and cursor.text not in ("{", ";"):
                if cursor.next() == "(":
                    skip_balanced(cursor, ")")
            if is_pragma:
                cursor.expect(";", "behind `.pragma`")
            found.append(" ".join(cursor.slice(first).split()))
        return tuple(found)

    def extents(self) -> str:
        """`.maxntid 0x100, 1`: its numbers in decimal."""
        cursor = self.cursor
        name, wanted = cursor.next(), "a number of threads or blocks"
        numbers = [parse_whole(cursor, wanted)]
        while cursor.accept(","):
            numbers.append(parse_whole(cursor, wanted))
        if len(numbers) > 3:
            raise cursor.error(f"`{name}` has one to three numbers, found {len(numbers)}", cursor.span(cursor.starts[cursor.at - 1]))
        return f"{name} {', '.join(map(str, numbers))}"

    # -- statements ----------------------------------------------------------------------------------------------------------------

    def statements(self) -> tuple[Statement, ...]:
        """Statements up to the `}` that ends the block, or to the end."""
        cursor, kinds, texts = self.cursor, self.cursor.kinds, self.cursor.texts
        found: list[Statement] = []
        append = found.append
        while True:
            kind, text = kinds[cursor.at], texts[cursor.at]
            if kind == WORD:
                if texts[cursor.at + 1] == ":":
                    append(Label(text, cursor.span()))
                    cursor.at += 2
                else:
                    append(self.instruction(None, cursor.starts[cursor.at]))
            elif kind == DIRECTIVE:
                found.extend(self.body_directive())
            elif text == "@":
                append(self.guarded())
            elif text == "{":
                append(self.block())
            elif text == "}" or kind == END:
                return tuple(found)
            elif not cursor.accept(";"):
                raise cursor.error(f"expected a statement, found {cursor.found()}")

    def block(self) -> Block:
        opening = self.cursor.span()
        self.cursor.at += 1
        self.names.enter()
        block = Block(self.statements())
        self.names.leave()
        if not self.cursor.accept("}"):
            raise self.cursor.error("`{` is never closed", opening)
        return block

    def body_directive(self) -> tuple[Statement, ...]:
        cursor = self.cursor
        text = cursor.text
        if text == ".loc":
            return (self.loc(),)
        if text == ".reg":
            registers = parse_registers(cursor)
            for register in registers:
                self.names.declare_register(register.name, register.count)
            return registers
        if text in SPACE_DIRECTIVES or text in LINKAGE:
            variables = parse_variables(cursor, parse_linkage(cursor))
            for variable in variables:
                self.names.declare_symbol(variable.name)
            return variables
        return (self.directive(),)

    def loc(self) -> Directive:
        """`.loc 1 15 3{, function_name $L__info{+8}, inlined_at 1 30 5}`; the instructions behind it carry the place."""
        cursor = self.cursor
        first = cursor.at
        cursor.at += 1
        place = self.place()
        outer: Location | None = None
        while cursor.accept(","):
            word = cursor.expect_kind(WORD, "`function_name` or `inlined_at`")
            if word == "inlined_at":
                key = self.place()
                outer = self.locations.get(key) or Location(*key)
            else:
                cursor.expect_kind(WORD, "a label")
                if cursor.accept("+"):
                    cursor.expect_kind(NUMBER, "an offset")
        self.location = self.locations[place] = Location(*place, outer)
        return Directive(cursor.slice(first))

    def place(self) -> tuple[int, int, int]:
        cursor = self.cursor
        return parse_whole(cursor, "the number of a file"), parse_whole(cursor, "a line"), parse_whole(cursor, "a column")

    # -- instructions --------------------------------------------------------------------------------------------------------------

    def guarded(self) -> Instruction:
        cursor = self.cursor
        start = cursor.starts[cursor.at]
        cursor.at += 1
        negated = cursor.accept("!")
        register = self.names.lookup(cursor.expect_kind(WORD, "a predicate behind `@`"))
        if not isinstance(register, Register):
            raise cursor.error("expected a predicate register behind `@`", cursor.span(cursor.starts[cursor.at - 1]))
        if cursor.kind != WORD:
            raise cursor.error(f"expected an instruction behind the guard, found {cursor.found()}")
        return self.instruction(Guard(register.name, negated), start)

    def instruction(self, guard: Guard | None, start: int) -> Instruction:
        cursor, texts = self.cursor, self.cursor.texts
        opcode_at = cursor.at
        text = texts[opcode_at]
        cursor.at += 1
        operands: tuple[Operand, ...] = ()
        if not cursor.accept(";"):
            operands = self.operands(text)
        key = (text, *map(type, operands))
        resolved = self.forms.get(key)
        if resolved is None:
            resolved = self.forms[key] = self.resolve(text, operands, opcode_at)
        span = Span(cursor.source, start, cursor.starts[cursor.at - 1] + 1)
        return Instruction(resolved[0], resolved[1], operands, resolved[2], guard, self.location, span)

    def operands(self, opcode: str) -> tuple[Operand, ...]:
        cursor, names = self.cursor, self.names
        found = []
        while True:
            found.append(parse_operand(cursor, names))
            text = cursor.next()
            if text == ",":
                continue
            if text == ";":
                return tuple(found)
            cursor.at -= 1
            raise cursor.error(f"expected `,` or `;` behind an operand of `{opcode}`, found {cursor.found()}")

    def resolve(self, text: str, operands: tuple[Operand, ...], at: int) -> tuple[str, tuple[str, ...], Form]:
        """Find the row of the table; the only place where an instruction can turn out to be unknown."""
        opcode, *modifiers = text.split(".")
        shapes = tuple(_SHAPES.get(type(operand), VALUE) for operand in operands)
        try:
            return opcode, tuple(modifiers), TABLE.match(opcode, tuple(modifiers), shapes)
        except NoMatch as answer:
            cursor = self.cursor
            span = Span(cursor.source, cursor.starts[at], cursor.starts[at] + len(text))
            rows = "".join(f"\n    {row}" for row in answer.rows[:3])
            if answer.reason == "opcode":
                raise UnsupportedPtx(f"the instruction `{shortened(text)}` is not supported", span) from None
            if answer.reason == "modifiers":
                raise UnsupportedPtx(
                    f"this form of `{opcode}` is not supported: `{shortened(text)}`; the nearest known are{rows}", span
                ) from None
            raise PtxTypeError(f"the operands of `{text}` do not fit; it is written{rows}", span) from None

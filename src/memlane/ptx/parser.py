"""Parse PTX text into a `Module`.

The grammar of statements is small and written out here; the instruction table defines the instructions. Directives that are not modelled
are kept as text.
"""

from __future__ import annotations

from memlane.ptx.declarations import (
    LINKAGE,
    SPACE_DIRECTIVES,
    parse_attribute,
    parse_linkage,
    parse_registers,
    parse_variable,
    parse_variables,
    parse_whole,
    skip_balanced,
)
from memlane.ptx.instructions import INSERTED, InstructionParser
from memlane.ptx.ir import (
    Block,
    Directive,
    Function,
    Guard,
    Item,
    Label,
    Module,
    Register,
    Statement,
    Variable,
)
from memlane.ptx.lexer import DIRECTIVE, END, NUMBER, STRING, WORD, Cursor
from memlane.ptx.location import Location
from memlane.ptx.operands import Names
from memlane.ptx.static_variables import hoist_static_variables
from memlane.source import Source, shortened

_LONGEST_VERSION = 9
_DEEPEST = 100
"""Deepest nesting of blocks: functions that walk a module recurse into each."""
_EXTENTS = frozenset({".maxntid", ".reqntid", ".reqnctapercluster", ".maxclusterrank"})
"""Performance directives with one to three numbers, against which a launch is checked."""
_ENDS_WITH_SEMICOLON = frozenset({".pragma", ".alias", ".branchtargets", ".calltargets", ".callprototype"})
_ENDS_A_HEAD = frozenset({*SPACE_DIRECTIVES, *LINKAGE, ".entry", ".func", ".file", ".section", ".alias", ".version", ".target", ".loc"})
"""Directives that cannot belong to the head of a function: they begin the next declaration."""


def parse(text: str, name: str = "<ptx>") -> Module:
    """Parse the text of a PTX module. `name` appears in error messages; it is usually the name of the file.

        module = ml.parse(Path("kernel.ptx").read_text(), "kernel.ptx")

    Raises `PtxSyntaxError`, `UnsupportedPtx` for an instruction that is not in the table, and `PtxTypeError` for one with the wrong
    operands; each gives the place in the text.
    """
    if not isinstance(text, str):
        raise TypeError(f"parse takes PTX text, as returned by Path(...).read_text(); got a {type(text).__name__}")
    parser = _Parser(Source(name, text))
    try:
        return parser.module()
    except RecursionError:
        raise parser.cursor.error("braces or brackets are nested too deeply") from None


def parse_statements(text: str, name: str = INSERTED) -> tuple[Statement, ...]:
    """Parse statements as in a function body, without the braces around them. Raises the errors of `parse`."""
    parser = _Parser(Source(name, text))
    statements = parser.statements()
    if parser.cursor.kind != END:
        raise parser.cursor.error(f"expected a statement, found {parser.cursor.found()}")
    return statements


class _Parser:
    """Recursive descent parser over the tokens of one text."""

    def __init__(self, source: Source) -> None:
        self.cursor = Cursor(source)
        self.names = Names()
        self.depth = 0
        self.location: Location | None = None
        self.locations: dict[tuple[int, int, int], Location] = {}
        self.instructions = InstructionParser(self.cursor, self.names)

    # -- module --------------------------------------------------------------------------------------------------------------------

    def module(self) -> Module:
        cursor = self.cursor
        cursor.expect(".version", "at the start of a module")
        version = cursor.expect_kind(NUMBER, "a version such as `9.0`")
        major, _, minor = version.partition(".")
        if not (major.isdecimal() and (minor or "0").isdecimal()) or len(version) > _LONGEST_VERSION:
            raise cursor.error(f"expected a version such as `9.0`, found `{shortened(version)}`", cursor.span(cursor.starts[cursor.at - 1]))
        self.instructions.version = int(major), int(minor or 0)
        cursor.expect(".target", "behind `.version`")
        target = [cursor.expect_kind(WORD, "an architecture such as `sm_90`")]
        while cursor.accept(","):
            target.append(cursor.expect_kind(WORD, "an option of `.target`"))
        # 64 bits where nothing is said: current assemblers support no other size.
        address_size = parse_whole(cursor, "32 or 64") if cursor.accept(".address_size") else 64
        items: list[Item] = []
        while cursor.kind != END:
            items.extend(self.items())
        return Module((int(major), int(minor or 0)), tuple(target), address_size, hoist_static_variables(tuple(items)), cursor.source.name)

    def items(self) -> tuple[Item, ...]:
        """Parse the next items at module scope; a declaration may hold several variables."""
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
                self.names.declare_variable(variable)
            return variables
        if (cursor.kind != DIRECTIVE and cursor.text != "@") or linkage:
            raise cursor.error(f"expected a directive, a variable or a function, found {cursor.found()}")
        return (self.directive(),)

    def directive(self) -> Directive:
        """Parse a directive kept as text: up to its `;` or `}`, or, if it has neither, to the end of its line."""
        cursor = self.cursor
        first = cursor.at
        name = cursor.next()
        if name == ".branchtargets":
            return self.branch_targets()
        if name == ".file":
            parse_whole(cursor, "the number of a file")
            cursor.expect_kind(STRING, "the name of a file in quotes")
        while cursor.kind != END and cursor.text != "}":
            # A block on the next line belongs to a `.section`; behind another directive it is a block of the body.
            if cursor.starts_line() and not (cursor.text == "{" and name == ".section") and name not in _ENDS_WITH_SEMICOLON:
                break
            if cursor.accept("{"):
                skip_balanced(cursor, "}")
                break
            if cursor.next() == ";":
                break
        if name in _ENDS_WITH_SEMICOLON and cursor.texts[cursor.at - 1] != ";":
            raise cursor.error(f"expected `;` at the end of `{name}`, found {cursor.found()}")
        return Directive(cursor.slice(first))

    def branch_targets(self) -> Directive:
        """Parse `a, b<2>;` behind `.branchtargets`, ranges of names expanded."""
        cursor = self.cursor
        names: list[str] = []
        while True:
            label = cursor.expect_kind(WORD, "a label")
            if cursor.accept("<"):
                names += [f"{label}{number}" for number in range(parse_whole(cursor))]
                cursor.expect(">", "after the number of labels")
            else:
                names.append(label)
            if cursor.accept(";"):
                return Directive(f".branchtargets {', '.join(names)};")
            cursor.expect(",", "or `;` in a list of branch targets")

    # -- functions -----------------------------------------------------------------------------------------------------------------

    def function(self, linkage: tuple[str, ...], first: int) -> Function:
        cursor = self.cursor
        is_entry = cursor.next() == ".entry"
        self.names.enter()
        self.location = None
        before = (parse_attribute(cursor),) if cursor.text == ".attribute" else ()
        results = self.parameters() if cursor.text == "(" else ()
        name = cursor.expect_kind(WORD, "the name of a function")
        params = self.parameters() if cursor.text == "(" else ()
        attributes = (*before, *self.attributes(linkage))
        span = cursor.span(cursor.starts[first])
        body = None
        if cursor.accept("{"):
            body = Block(self.statements())
            cursor.expect("}", f"at the end of `{name}`")
        elif "extern" not in linkage or not (cursor.kind in (DIRECTIVE, END) or cursor.text == "@"):
            cursor.expect(";", f"or a body in braces after the head of `{name}`")
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
                self.names.declare_register(param.name, None, param.type, param.vector)
            else:
                self.names.declare_variable(param)
            if cursor.accept(")"):
                return tuple(params)
            cursor.expect(",", "or `)` after a parameter")

    def attributes(self, linkage: tuple[str, ...]) -> tuple[str, ...]:
        """Parse `.maxntid 256, 1, 1` and similar, each as one text, up to the body or, without a body, to the next declaration."""
        cursor = self.cursor
        found: list[str] = []
        while cursor.kind == DIRECTIVE and cursor.text not in _ENDS_A_HEAD and not ("extern" in linkage and cursor.text == ".pragma"):
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
            found.append(cursor.spelled(first))
        return tuple(found)

    def extents(self) -> str:
        """Parse `.maxntid 0x100, 1`, and return it with its numbers in decimal."""
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
        """Parse statements up to the `}` that ends the block, or to the end."""
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
                    found.extend(self.instructions.parse(None, cursor.starts[cursor.at], self.location))
            elif kind == DIRECTIVE:
                found.extend(self.body_directive())
            elif text == "@":
                found.extend(self.guarded())
            elif text == "{":
                append(self.block())
            elif text == "}" or kind == END:
                return tuple(found)
            elif not cursor.accept(";"):
                raise cursor.error(f"expected a statement, found {cursor.found()}")

    def block(self) -> Block:
        opening = self.cursor.span()
        if self.depth == _DEEPEST:
            raise self.cursor.error(f"braces are nested too deeply: more than {_DEEPEST} times", opening)
        self.cursor.at += 1
        self.depth += 1
        self.names.enter()
        block = Block(self.statements())
        self.names.leave()
        self.depth -= 1
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
                self.names.declare_register(register.name, register.count, register.type, register.vector)
            return registers
        if text in SPACE_DIRECTIVES or text in LINKAGE:
            variables = parse_variables(cursor, parse_linkage(cursor))
            for variable in variables:
                if self.names.meet(variable):
                    raise cursor.error(f"`{variable.name}` is declared twice: as a register and as a variable", variable.span)
                self.names.declare_variable(variable)
            return variables
        return (self.directive(),)

    def loc(self) -> Directive:
        """Parse `.loc 1 15 3{, function_name $L__info{+8}, inlined_at 1 30 5}`; the instructions behind it carry the place."""
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

    def guarded(self) -> tuple[Statement, ...]:
        cursor = self.cursor
        start = cursor.starts[cursor.at]
        cursor.at += 1
        negated = cursor.accept("!")
        register = self.names.lookup(cursor.expect_kind(WORD, "a predicate after `@`"))
        if not isinstance(register, Register):
            raise cursor.error("expected a predicate register after `@`", cursor.span(cursor.starts[cursor.at - 1]))
        if cursor.kind != WORD:
            raise cursor.error(f"expected an instruction after the guard, found {cursor.found()}")
        return self.instructions.parse(Guard(register.name, negated), start, self.location)

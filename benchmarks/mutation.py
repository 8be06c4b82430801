"""Find small wrong changes of Python source that the tests should notice, and write the text of each."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "minimum": "maximum", "maximum": "minimum"}


@dataclass(frozen=True)
class Mutant:
    """One wrong change of one file."""

    path: str
    """Path of the file, from the root of the project."""
    line: int
    """The first line that it changes."""
    statement: range
    """The lines of the statement, or of the head of a compound statement, that it changes: what is executed with it."""
    is_global: bool
    """True if the statement is executed when the module is imported."""
    start: int
    """The first byte of the file that it replaces."""
    end: int
    old: str
    new: str

    @property
    def title(self) -> str:
        """Return the change in one line."""
        return f"{self.path}:{self.line}: {_short(self.old)} -> {_short(self.new)}"

    def applied(self, source: bytes) -> bytes:
        """Return the text of the file with the change."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutants(path: str, root: Path) -> list[Mutant]:
    """Return the mutants of a file, in the order of its text.

    They change comparisons, conditions, arithmetic, constants, members of collections, calls of `min`, `max`, `any`, `all`
    and `sorted`, or leave out a statement. Annotations, messages and docstrings have none.
    """
    source = (root / path).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def of(node: ast.expr | ast.stmt, statement: ast.stmt, new: str) -> Mutant:
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        return Mutant(path, node.lineno, _executed(statement), statement not in local, start, end, source[start:end].decode(), new)

    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    local = {one for function in functions for one in ast.walk(function) if isinstance(one, ast.stmt) and one is not function}
    found = dict.fromkeys(of(node, statement, new) for node, statement, new in _changes(tree))
    return sorted((one for one in found if _is_another(one)), key=lambda one: (one.start, one.end, one.new))


def _is_another(one: Mutant) -> bool:
    """Return whether the text says something else, and can be read."""
    try:
        return ast.dump(ast.parse(f"({one.old})")) != ast.dump(ast.parse(one.new))
    except SyntaxError:  # A statement does not stand in parentheses.
        return True


def _executed(statement: ast.stmt) -> range:
    """Return the lines of a statement except those of nested statements; all lines of a `match`, because its cases have conditions."""
    inside = [one.lineno for field in ("body", "orelse", "finalbody", "handlers") for one in getattr(statement, field, [])]
    last = min(inside) - 1 if inside else statement.end_lineno or statement.lineno
    return range(statement.lineno, max(last, statement.lineno) + 1)


def _changes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, ast.stmt, str]]:
    """Yield each replaced node, its statement and its replacement."""
    for statement in _statements(tree):
        if isinstance(statement, ast.Assert) or _is_names(statement):
            continue
        yield from ((statement, statement, new) for new in _of_statement(statement))
        series = _series(statement)
        for node in _expressions(statement):
            yield from ((node, statement, f"({ast.unparse(new)})") for new in _of_expression(node, node in series))


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            yield node


def _is_names(statement: ast.stmt) -> bool:
    """Return whether a statement says what a module exports, imports, or declares for type checkers."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    exported = any(isinstance(one, ast.Name) and (one.id == "__all__" or "TypeVar" in ast.unparse(statement)) for one in targets)
    return (
        exported
        or isinstance(statement, ast.Import | ast.ImportFrom)
        or (isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test))
    )


def _of_statement(statement: ast.stmt) -> Iterator[str]:
    """Return the replacement of a statement that is left out."""
    match statement:
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Break():
            yield "pass"
        case ast.Continue():
            yield "break"


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions that decide a statement's effect."""
    match statement:
        case ast.FunctionDef(args=arguments):
            roots: list[ast.AST | None] = [*arguments.defaults, *arguments.kw_defaults]
        case ast.ClassDef():
            roots = []
        case ast.AnnAssign(value=value):
            roots = [value]
        case ast.Assign(value=value) if not _is_alias(value):
            roots = [value]
        case ast.Assign() | ast.Raise():
            roots = []
        case _:
            fields = (
                getattr(statement, name) for name in statement._fields if name not in ("body", "orelse", "finalbody", "handlers", "target")
            )
            roots = [one for field in fields for one in (field if isinstance(field, list) else [field])]
    for root in roots:
        if isinstance(root, ast.AST):
            yield from _inside(root, statement)


def _is_alias(value: ast.expr) -> bool:
    """Return whether an assignment names a type: its value looks like an annotation."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
        return "NDArray" in ast.unparse(value) or all(one[:1].isupper() for one in ast.unparse(value).split(" | "))
    root = value.value if isinstance(value, ast.Subscript) else value.left if isinstance(value, ast.BinOp) else None
    return isinstance(root, ast.Name) and root.id in (
        "Callable",
        "Mapping",
        "Sequence",
        "dict",
        "list",
        "tuple",
        "frozenset",
        "set",
        "Literal",
    )


def _inside(root: ast.AST, statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions in one, without formatted text, whose places Python 3.11 does not know, patterns, and arguments of types."""
    if isinstance(root, ast.JoinedStr | ast.pattern):
        return
    if isinstance(root, ast.match_case):
        children: list[ast.AST] = [] if root.guard is None else [root.guard]
    elif isinstance(root, ast.Call) and isinstance(root.func, ast.Subscript):  # frozenset[int]()
        children = [*root.args, *root.keywords]
    else:
        children = list(ast.iter_child_nodes(root))
    if isinstance(root, ast.expr) and not isinstance(getattr(root, "ctx", ast.Load()), ast.Store):
        yield root
    for child in children:
        yield from _inside(child, statement)


def _series(statement: ast.stmt) -> set[ast.expr]:
    """Return the tuples of a statement that are iterated over or searched, so that one without a member is still a valid tuple. Other
    tuples are records with a fixed number of fields."""
    found: set[ast.expr] = set()
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        found.add(statement.value)
    for node in ast.walk(statement):
        match node:
            case ast.Compare(comparators=members):
                found.update(members)
            case ast.For(iter=series) | ast.comprehension(iter=series) | ast.Starred(value=series):
                found.add(series)
    return found


def _of_expression(node: ast.expr, is_series: bool) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                yield _with(node, lambda new, place=place, op=op: new.ops.__setitem__(place, _COMPARED[type(op)]()))
        case ast.BoolOp(op=op, values=values):
            yield _with(node, lambda new: setattr(new, "op", ast.Or() if isinstance(op, ast.And) else ast.And()))
            for place in range(len(values)):
                yield _without(node, "values", place)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield operand
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            yield ast.Constant(value)
        case ast.BinOp(op=op) if type(op) in _COMPUTED:
            yield _with(node, lambda new: setattr(new, "op", _COMPUTED[type(op)]()))
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.IfExp(body=body, orelse=orelse):
            yield body
            yield orelse
        case ast.Set(elts=elements) | ast.List(elts=elements) if len(elements) > 1:
            for place in range(len(elements)):
                yield _without(node, "elts", place)
        case ast.Tuple(elts=elements) if len(elements) > 1 and is_series:
            for place in range(len(elements)):
                yield _without(node, "elts", place)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for number, generator in enumerate(node.generators):
                for place in range(len(generator.ifs)):
                    yield _with(node, lambda new, number=number, place=place: new.generators[number].ifs.pop(place))
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _CALLED and node.args:
            yield _with(node, lambda new: _rename(new.func, _CALLED[name]))


def _with(node: ast.expr, change: Callable[[ast.expr], object]) -> ast.expr:
    new = deepcopy(node)
    change(new)
    return new


def _without(node: ast.expr, field: str, place: int) -> ast.expr:
    """Return a node without one of its members. In a chain of two conditions, the other condition is left."""
    left = [one for number, one in enumerate(getattr(node, field)) if number != place]
    return left[0] if isinstance(node, ast.BoolOp) and len(left) == 1 else _with(node, lambda new: setattr(new, field, left))


def _rename(function: ast.expr, name: str) -> None:
    setattr(function, "attr" if isinstance(function, ast.Attribute) else "id", name)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 70 else f"{line[:33]} ... {line[-33:]}"

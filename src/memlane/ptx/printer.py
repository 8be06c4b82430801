"""Print a `Module` as PTX text, which `parse` reads back as the same module."""

from __future__ import annotations

from collections.abc import Iterator

from memlane.ptx.ir import (
    Address,
    Arguments,
    Block,
    Directive,
    Function,
    Immediate,
    Instruction,
    Label,
    Module,
    Operand,
    Pair,
    Register,
    RegisterDecl,
    Sink,
    Special,
    Statement,
    Symbol,
    TextureAddress,
    Variable,
    Vector,
)


def print_module(module: Module) -> str:
    """Return the text of a module."""
    lines = [
        f".version {module.version[0]}.{module.version[1]}",
        f".target {', '.join(module.target)}",
        *([f".address_size {module.address_size}"] if module.version >= (2, 3) or module.address_size != 64 else []),
        "",
    ]
    for item in module.items:
        if isinstance(item, Function):
            lines.extend(("", *_function(item), ""))
        elif isinstance(item, Variable):
            lines.append(f"{variable_text(item)};")
        else:
            lines.append(item.text)
    return "\n".join(lines) + "\n"


def print_statements(statements: tuple[Statement, ...], indent: str = "\t") -> str:
    """Return the text of statements, one per line."""
    return "\n".join(_statements(statements, indent))


def _function(function: Function) -> Iterator[str]:
    linkage = "".join(f".{word} " for word in function.linkage)
    results = f"({', '.join(map(variable_text, function.results))}) " if function.results else ""
    before = "".join(f"{one} " for one in function.attributes if one.startswith(".attribute"))
    head = f"{linkage}{'.entry' if function.is_entry else '.func'} {before}{results}{function.name}"
    if function.params:
        yield head + "("
        yield ",\n".join(f"\t{variable_text(param)}" for param in function.params)
        head = ")"
    else:
        head += "()"
    yield head
    yield from (one for one in function.attributes if not one.startswith(".attribute"))
    if function.body is None:
        yield ";"
        return
    yield "{"
    yield from _statements(function.body.statements, "\t")
    yield "}"


def _statements(statements: tuple[Statement, ...], indent: str) -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, Instruction):
            yield indent + instruction_text(statement)
        elif isinstance(statement, Label):
            yield f"{statement.name}:"
        elif isinstance(statement, Block):
            yield indent + "{"
            yield from _statements(statement.statements, indent)
            yield indent + "}"
        elif isinstance(statement, RegisterDecl):
            yield f"{indent}{_registers(statement)}"
        elif isinstance(statement, Variable):
            yield f"{indent}{variable_text(statement)};"
        else:
            assert isinstance(statement, Directive)
            yield indent + statement.text


def _registers(declaration: RegisterDecl) -> str:
    vector = f".v{declaration.vector} " if declaration.vector > 1 else ""
    count = "" if declaration.count is None else f"<{declaration.count}>"
    return f".reg {vector}.{declaration.type} {declaration.name}{count};"


def variable_text(variable: Variable) -> str:
    """Return a declaration without its semicolon, as in a list of parameters."""
    words = [f".{word}" for word in variable.linkage]
    words.append(f".{variable.space}")
    before, pointer, rest = variable.attributes.partition(".ptr")
    if before.strip():
        words.append(before.strip())
    if variable.align is not None:
        words.append(f".align {variable.align}")
    if variable.vector > 1:
        words.append(f".v{variable.vector}")
    words.append(f".{variable.type}")
    if pointer:
        words.append((pointer + rest).strip())
    shape = "".join(f"[{extent or ''}]" for extent in variable.shape or ())
    words.append(variable.name + shape)
    if variable.initial is not None:
        words.append(f"= {variable.initial}")
    return " ".join(words)


def instruction_text(instruction: Instruction) -> str:
    """Return the text of one instruction with its guard and its semicolon."""
    guard = ""
    if instruction.guard is not None:
        guard = f"@{'!' if instruction.guard.negated else ''}{instruction.guard.register} "
    operands = ", ".join(map(operand_text, instruction.operands))
    if instruction.opcode == "vmad":
        operands = operands.replace("!", "-")
    return f"{guard}{instruction.name} {operands};" if operands else f"{guard}{instruction.name};"


def operand_text(operand: Operand) -> str:
    """Return the text of one operand."""
    match operand:
        case Register(name, negated):
            return f"!{name}" if negated else name
        case Special(name):
            return name
        case Immediate():
            return immediate_text(operand)
        case Symbol(name, offset):
            return f"{name}{_offset(offset)}"
        case Address(base, offset):
            return f"[{operand_text(base)}{_offset(offset)}]"
        case Vector(items):
            return f"{{{', '.join(map(operand_text, items))}}}"
        case Pair(first, second):
            return f"{operand_text(first)}|{operand_text(second)}"
        case TextureAddress(items):
            return f"[{', '.join(map(operand_text, items))}]"
        case Arguments(items):
            return f"({', '.join(map(operand_text, items))})"
        case Sink():
            return "_"


def _offset(offset: int) -> str:
    return f"+{offset}" if offset else ""


def immediate_text(literal: Immediate) -> str:
    """Return the source spelling of a literal, or the shortest exact one."""
    if literal.text:
        return literal.text
    if literal.kind == "int":
        return str(literal.value)
    return f"0f{literal.value:08X}" if literal.kind == "f32" else f"0d{literal.value:016X}"

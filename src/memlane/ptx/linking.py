"""Link several modules into one, by the rules of nvlink.

    link_modules((a, b))      one Module with the kernels, functions and variables of both

A name with `.visible`, `.weak` or `.common` is shared by all modules; any other name is local to its module, and is renamed where two
modules use it. A declaration with `.extern` refers to another module's definition. Of several `.weak` definitions (templates, inline
functions) the first is kept, unless one of them is not weak.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from memlane.errors import LinkError
from memlane.number_format import plural
from memlane.ptx.calls import SYSTEM_CALLS
from memlane.ptx.demangle import demangle
from memlane.ptx.initializers import initial_values
from memlane.ptx.ir import Block, Directive, Function, Instruction, Item, Module, Statement, Variable
from memlane.ptx.location import Location, file_of
from memlane.ptx.parser import parse
from memlane.ptx.printer import print_module
from memlane.ptx.registers import names_in

_SHARED_BY_ALL = frozenset({"visible", "weak", "common"})
_ARCHITECTURE = re.compile(r"(?:sm|compute)_(\d+)([af]?)")
_STRINGS = re.compile(r"\.section\s+\.debug_str\b")
_PLACE = re.compile(r"(\.loc\s+|\binlined_at\s+)(\w+)")
_RUNTIME = re.compile(r"(?:__)?cuda[A-Z]")
_LONGEST_LIST = 5

Definition = Function | Variable


@dataclass
class _Names:
    """Declarations and definitions of one shared name, with their modules."""

    declared: list[tuple[Module, Definition]] = field(default_factory=list)
    defined: list[tuple[Module, Definition]] = field(default_factory=list)


def link_modules(modules: Sequence[Module], elsewhere: bool = False) -> Module:
    """Return one module with the kernels, functions and variables of all of them.

    With `elsewhere`, names that none of them defines may be defined by machine code, and stay declared.

    Raises LinkError for a name that is defined twice, that two modules declare differently, or that a module uses and none defines, and for
    modules of different architectures.
    """
    if len(modules) == 1 and elsewhere:
        return modules[0]
    version, target, address_size = _common_head(modules)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(n for one in modules for n in one.files.values()), 1)}
    modules = [_with_places(index, one, numbers) for index, one in enumerate(_with_own_names(modules))]
    names = _collect_names(modules)
    kept = {name: _choose_definition(name, one) for name, one in names.items()}
    for name, one in names.items():
        _check_declarations(name, one, kept[name])
    if not elsewhere:
        _check_complete(modules, kept)
    sources = {name: text for one in reversed(modules) for name, text in one.sources.items()}
    aliases = {name: kernel for one in reversed(modules) for name, kernel in one.aliases.items()}
    left_out = {name: why for one in reversed(modules) for name, why in one.left_out.items()}
    title = " + ".join(one.name for one in modules)
    items = tuple(_ordered([item for one in modules for item in one.items], kept, numbers))
    return Module(version, target, address_size, items, name=title, sources=sources, aliases=aliases, left_out=left_out)


# -- compatibility -----------------------------------------------------------------------------------------------------------------


def _common_head(modules: Sequence[Module]) -> tuple[tuple[int, int], tuple[str, ...], int]:
    """Return version, target and address size of the linked module: those of the newest architecture, on which the others run too."""
    sizes = {one.address_size for one in modules}
    if len(sizes) > 1:
        raise LinkError(f"{_listed(one.name for one in modules)} have addresses of different sizes; compile all of them for 64 bits")
    found = [(one, _ARCHITECTURE.fullmatch(one.target[0]) if one.target else None) for one in modules]
    known = [(one, int(match[1]), match[2]) for one, match in found if match is not None]
    newest = max(known, key=lambda entry: (entry[1], entry[2]), default=None)
    if newest is None:
        return max(one.version for one in modules), modules[0].target, sizes.pop()
    for one, number, suffix in known:
        if suffix and (number, suffix) != newest[1:]:
            raise LinkError(
                f"{one.name} is for {one.target[0]} alone and {newest[0].name} for {newest[0].target[0]}; compile both for one architecture"
            )
    options = dict.fromkeys(option for one in modules for option in one.target[1:])
    return max(one.version for one in modules), (newest[0].target[0], *options), sizes.pop()


def _with_own_names(modules: Sequence[Module]) -> list[Module]:
    """Return the modules with local names changed so that they differ from all names of the others; the first module keeps its own."""
    definitions = [[item for item in one.items if isinstance(item, Definition)] for one in modules]
    shared = {item.name for items in definitions for item in items if _is_shared(item)}
    taken = {item.name for items in definitions for item in items}
    before: set[str] = set()
    found = []
    for module, items in zip(modules, definitions, strict=True):
        own = dict.fromkeys(item.name for item in items)
        here = {item.name for item in items if _is_shared(item)}
        changes: dict[str, str] = {}
        for name in own:
            if name not in here and (name in before or name in shared):
                changes[name] = next(new for number in count(1) if (new := f"{name}__{number}") not in taken)
                taken.add(changes[name])
        before.update(own)
        found.append(_renamed(module, changes) if changes else module)
    return found


def _renamed(module: Module, changes: Mapping[str, str]) -> Module:
    """Return the module with some of its own functions and variables renamed."""
    words = "|".join(map(re.escape, sorted(changes, key=len, reverse=True)))
    pattern = re.compile(rf'"[^"\n]*"|(?<![\w$%.])(?:{words})(?![\w$])')
    text = pattern.sub(lambda found: changes.get(found[0], found[0]), print_module(module))
    conventions = {name: one.convention for name, one in module.functions.items()}
    again = parse(text, f"{module.name} (PTX)")
    back = {new: name for name, new in changes.items()}
    items = tuple(
        replace(one, convention=conventions.get(back.get(one.name, one.name)))
        if isinstance(one, Function) and one.body is not None
        else one
        for one in again.items
    )
    return replace(module, items=items)


def _is_shared(item: Definition) -> bool:
    """Return whether the name of a function or variable is shared by all modules, as that of dynamic shared memory always is."""
    return "extern" in item.linkage or not _SHARED_BY_ALL.isdisjoint(item.linkage)


def _is_dynamic(item: Definition) -> bool:
    return isinstance(item, Variable) and item.space == "shared" and "extern" in item.linkage


def _collect_names(modules: Sequence[Module]) -> dict[str, _Names]:
    found: dict[str, _Names] = {}
    for module in modules:
        for item in module.items:
            if isinstance(item, Definition) and not _is_dynamic(item):
                declares = "extern" in item.linkage or (isinstance(item, Function) and item.body is None)
                names = found.setdefault(item.name, _Names())
                (names.declared if declares else names.defined).append((module, item))
    return found


def _choose_definition(name: str, names: _Names) -> Definition | None:
    """Return the definition that is kept; None if there is none."""
    strong = [(module, one) for module, one in names.defined if not {"weak", "common"} & {*one.linkage}]
    if len(strong) > 1:
        (first, item), (second, _) = strong[:2]
        what = "kernel" if isinstance(item, Function) and item.is_entry else "function" if isinstance(item, Function) else "variable"
        remedy = "rename one of them" if what == "kernel" else "keep one definition, or make it `static`"
        raise LinkError(f"the {what} `{demangle(name)}` is defined in {first.name} and again in {second.name}; {remedy}")
    if strong:
        return strong[0][1]
    common = [one for _, one in names.defined if isinstance(one, Variable) and "common" in one.linkage]
    if common:
        return max(common, key=lambda one: one.nbytes)
    return names.defined[0][1] if names.defined else None


def _check_declarations(name: str, names: _Names, kept: Definition | None) -> None:
    """Raise LinkError for a declaration that does not match the definition."""
    if kept is None:
        return
    home = next(module.name for module, one in names.defined if one is kept)
    for module, one in names.declared:
        if not _matches(one, kept):
            raise LinkError(
                f"`{demangle(name)}` is {_description(one)} where {module.name} declares it and {_description(kept)} where {home} "
                "defines it; make the declaration the same as the definition"
            )


def _matches(declared: Definition, defined: Definition) -> bool:
    if isinstance(declared, Function) and isinstance(defined, Function):
        return [_size_and_alignment(one) for one in (*declared.results, *declared.params)] == [
            _size_and_alignment(one) for one in (*defined.results, *defined.params)
        ]
    if isinstance(declared, Variable) and isinstance(defined, Variable):
        return declared.space == defined.space and declared.nbytes in (0, defined.nbytes)
    return False


def _size_and_alignment(parameter: Variable) -> tuple[int, int]:
    return parameter.nbytes, parameter.alignment


def _description(one: Definition) -> str:
    if isinstance(one, Variable):
        return f"a variable of {plural(one.nbytes, 'byte')} in {one.space} memory"
    takes = ", ".join(str(parameter.nbytes) for parameter in one.params) or "0"
    returns = ", ".join(str(result.nbytes) for result in one.results)
    return f"a function of {takes} bytes of parameters" + (f" that returns {returns}" if returns else "")


def _check_complete(modules: Sequence[Module], kept: Mapping[str, Definition | None]) -> None:
    """Raise LinkError for a name that is used but not defined."""
    absent = {name for name, one in kept.items() if one is None} - SYSTEM_CALLS
    for module in modules if absent else ():
        for item in module.items:
            for name, where in _uses(module, item):
                if name in absent and _RUNTIME.match(name):
                    raise LinkError(
                        f"{where} calls the CUDA runtime (`{name}`), but memlane does not run kernels that launch kernels or call the "
                        "runtime (dynamic parallelism); launch the inner kernel and call the runtime from the host"
                    )
                if name in absent:
                    files = _listed(one.name for one in modules)
                    raise LinkError(f"`{demangle(name)}`, which {where} uses, is not defined in {files}; link the file that defines it too")


def _uses(module: Module, item: Item) -> Iterator[tuple[str, str]]:
    """Yield each name in the code of a function or the initial value of a variable, with a text for its user and place."""
    if isinstance(item, Variable):
        for value in initial_values(item):
            yield value.name, f"`{demangle(item.name)}` in {module.name}"
    elif isinstance(item, Function):
        for one in item.instructions():
            place = module.users_location(one.location) if one.location is not None else None
            file = module.files.get(place.file) if place is not None else None
            where = f"{file}:{place.line}" if file and place is not None else module.name
            for operand in one.operands:
                for name in names_in(operand):
                    yield name, f"`{item.title}` ({where})"


def _listed(names: Iterator[str] | Sequence[str]) -> str:
    listed = list(names)
    if len(listed) > _LONGEST_LIST:
        listed = [*listed[:_LONGEST_LIST], f"{len(listed) - _LONGEST_LIST} more"]
    return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)


# -- places in the source --------------------------------------------------------------------------------------------------------------


def _with_places(index: int, module: Module, numbers: Mapping[str, int]) -> Module:
    """Return the module with the file numbers and string labels that it has in the linked module."""
    files = {number: numbers[name] for number, name in module.files.items()}
    strings = [one.text for one in module.items if isinstance(one, Directive) and _STRINGS.match(one.text)]
    labels = {label: f"{label}_{index}" for text in strings for label in re.findall(r"([\w$%]+)\s*:", text)} if index else {}
    if not labels and all(old == new for old, new in files.items()):
        return module
    places = _Places(files, labels)
    return replace(module, items=tuple(places.item(one) for one in module.items))


@dataclass
class _Places:
    """Renumbering of files and renaming of string labels in items."""

    files: Mapping[int, int]
    labels: Mapping[str, str]
    moved: dict[int, Location] = field(default_factory=dict)
    """Renumbered locations by the identity of the original, which the module keeps alive."""

    def item(self, item: Item) -> Item:
        if isinstance(item, Directive):
            file = file_of(item.text)
            if file is not None:
                return Directive(f'.file\t{self.files[file[0]]} "{file[1]}"')
            return Directive(self._labelled(item.text)) if _STRINGS.match(item.text) else item
        if isinstance(item, Variable) or item.body is None:
            return item
        return replace(item, body=self._block(item.body))

    def _block(self, block: Block) -> Block:
        return Block(tuple(map(self._statement, block.statements)))

    def _statement(self, one: Statement) -> Statement:
        if isinstance(one, Block):
            return self._block(one)
        if isinstance(one, Instruction):
            return one if one.location is None else replace(one, location=self._location(one.location))
        if isinstance(one, Directive) and one.text.startswith(".loc"):
            text = _PLACE.sub(lambda found: f"{found[1]}{self.files.get(int(found[2], 0), found[2])}", one.text)
            return Directive(self._labelled(text))
        return one

    def _location(self, location: Location) -> Location:
        places: list[Location] = []
        outer: Location | None = location
        while outer is not None and id(outer) not in self.moved:
            places.append(outer)
            outer = outer.inlined_into
        moved = self.moved.get(id(outer))
        for place in reversed(places):
            moved = self.moved[id(place)] = replace(place, file=self.files.get(place.file, place.file), inlined_into=moved)
        return self.moved[id(location)]

    def _labelled(self, text: str) -> str:
        return re.sub(r"[\w$%]+", lambda found: self.labels.get(found[0], found[0]), text) if self.labels else text


# -- the order of the text -------------------------------------------------------------------------------------------------------------


def _ordered(items: Sequence[Item], kept: Mapping[str, Definition | None], numbers: Mapping[str, int]) -> Iterator[Item]:
    """Yield declarations before their uses: of functions, then variables, then functions with their bodies."""
    functions = [one for one in items if isinstance(one, Function) and (one.body is None or kept[one.name] is one)]
    directives = [one for one in items if isinstance(one, Directive)]
    declared: set[str] = set()
    for one in functions:
        if not one.is_entry and one.name not in declared and (one.body is None or _is_shared(one)):
            declared.add(one.name)
            definition = kept.get(one.name)
            yield replace(definition if isinstance(definition, Function) else one, body=None, attributes=(), convention=None)
    yield from _variables([one for one in items if isinstance(one, Variable)], kept)
    yield from (one for one in directives if not _STRINGS.match(one.text) and file_of(one.text) is None)
    yield from (one for one in functions if one.body is not None)
    yield from (Directive(f'.file\t{number} "{name}"') for name, number in numbers.items())
    strings = [one.text.partition("{")[2].rpartition("}")[0].strip() for one in directives if _STRINGS.match(one.text)]
    if strings:
        inner = "\n".join(strings)
        yield Directive(f".section\t.debug_str\n{{\n{inner}\n}}")


def _variables(variables: Sequence[Variable], kept: Mapping[str, Definition | None]) -> Iterator[Variable]:
    """Yield each variable once, behind those that its initial value names."""
    pending: dict[str, Variable] = {}
    for one in variables:
        if _is_dynamic(one):
            pending[one.name] = max(pending.get(one.name, one), one, key=lambda each: each.alignment)
        elif kept.get(one.name) is None:
            pending.setdefault(one.name, one)
        elif kept[one.name] is one:
            pending[one.name] = one
    while pending:
        ready = [
            one for one in pending.values() if not any(value.name in pending and value.name != one.name for value in initial_values(one))
        ]
        for one in ready or list(pending.values()):
            del pending[one.name]
            yield one

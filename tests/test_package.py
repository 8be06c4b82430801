"""The package as a whole: its public surface, what an import costs, and the house rules that no linter knows."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from functools import cache, partial
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import memlane
from memlane import errors

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "memlane"
PACKAGES = {module.name for module in pkgutil.iter_modules(memlane.__path__)}
PUBLIC_NAMES = 40
IMPORT_SECONDS = 0.3
LINES = 700
FUNCTION_LINES = 80
HEAVY = ("llvmlite", "cuda", "pyarrow", "numpy", "rich", "typer", "mpi4py")


# -- the public surface ----------------------------------------------------------------------------------------------------------


def test_public_names_are_few_and_sorted() -> None:
    assert memlane.__all__ == sorted(memlane.__all__)
    assert len(set(memlane.__all__)) == len(memlane.__all__) < PUBLIC_NAMES


def test_no_public_name_is_a_package() -> None:
    """`ml.trace` next to a package `trace` would be the package from its first import on."""
    assert not PACKAGES & set(memlane.__all__)


@pytest.mark.parametrize("name", memlane.__all__)
def test_every_public_name_resolves_and_says_what_it_is(name: str) -> None:
    found = getattr(memlane, name)
    assert callable(found)
    assert found.__doc__
    assert found.__name__ == name


def test_names_load_when_first_used_and_stay() -> None:
    assert set(memlane.__all__) <= set(dir(memlane))
    assert memlane.trace is memlane.trace
    with pytest.raises(AttributeError, match="module 'memlane' has no attribute 'tracy'"):
        memlane.tracy  # noqa: B018


def test_version_is_that_of_the_project() -> None:
    (declared,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert memlane.__version__ == declared


PTX = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry idle(.param .u32 n) { ret; }\n"


def test_what_is_no_module_trace_or_text_is_told_so() -> None:
    target = memlane.target("emulator:h200")
    for act, message in (
        (lambda: target.load("transpose.cu"), "load takes a module, as returned by ml.cuda(path) or ml.parse(text); got a str"),
        (lambda: memlane.explain(5), "explain takes a trace, the path of a record file, or counts; got a int"),  # type: ignore[arg-type]
        (lambda: memlane.explain([5]), "explain takes a trace, the path of a record file, or counts; got a list"),  # type: ignore[list-item]
        (lambda: memlane.parse(5), "parse takes PTX text, as returned by Path(...).read_text(); got a int"),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError) as raised:
            act()
        assert str(raised.value) == message


def test_a_kernel_without_grid_and_block_is_told_so_by_all_who_launch_it() -> None:
    kernel = memlane.target("emulator:h200").load(memlane.parse(PTX))["idle"]
    for act in (kernel, *(partial(measure, kernel) for measure in (memlane.trace, memlane.count, memlane.time))):
        with pytest.raises(errors.BadLaunch, match=r"^idle needs a grid and a block: write idle\[grid, block\]"):
            act(5)
    with pytest.raises(errors.BadLaunch, match="repeats must be at least 1, got 0"):
        memlane.time(kernel[1, 1], 5, repeats=0)


# -- what an import costs --------------------------------------------------------------------------------------------------------


@cache
def modules_after(statement: str) -> frozenset[str]:
    """Top-level modules of a fresh process after a statement."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return frozenset(json.loads(done.stdout))


def test_import_opens_nothing() -> None:
    loaded = modules_after("import memlane")
    assert not {name.partition(".")[0] for name in loaded} & set(HEAVY)
    assert {name for name in loaded if name.startswith("memlane")} == {"memlane"}


def test_import_is_quick() -> None:
    """By the processor's time, because the machine may be busy."""
    code = "import time; start = time.process_time(); import memlane; print(time.process_time() - start)"
    assert float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) < IMPORT_SECONDS


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("from memlane import parse; parse('.version 8.0\\n.target sm_90\\n.address_size 64\\n')", {"llvmlite", "cuda"}),
        ("from memlane import explain", {"llvmlite", "cuda"}),
        ("from memlane import cuda", {"llvmlite", "pyarrow", "cuda.core"}),
        ("from memlane.targets import describe; describe()", {"cuda.core"}),
    ],
)
def test_parts_load_only_what_they_need(statement: str, absent: set[str]) -> None:
    loaded = modules_after(statement)
    assert not {name for name in loaded if name in absent or name.partition(".")[0] in absent}


# -- errors ----------------------------------------------------------------------------------------------------------------------


def drawn_tree() -> dict[str, str]:
    """Class to base, as the docstring of `memlane.errors` draws it."""
    bases: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"^((?:    |\|   )*)(?:\+-- )?([A-Z]\w+)  ", line):
            depth = line.index(match[2])
            path = [entry for entry in path if entry[0] < depth]
            if path:
                bases[match[2]] = path[-1][1]
            path.append((depth, match[2]))
    return bases


def test_tree_of_errors_is_drawn_as_it_is() -> None:
    classes = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.MemlaneError)}
    assert drawn_tree() == {name: kind.__bases__[0].__name__ for name, kind in classes.items() if name != "MemlaneError"}


def test_every_error_says_what_it_is_for() -> None:
    assert all(kind.__doc__ for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception))


# -- the house -------------------------------------------------------------------------------------------------------------------


def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_no_file_is_too_long() -> None:
    long = {str(path.relative_to(ROOT)): lines for path in sources() if (lines := len(path.read_text().splitlines())) > LINES}
    assert long == {}


def test_no_function_is_too_long() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": lines
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES
    }
    assert long == {}


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports of types alone count too: what names each other is one thing, in however many files."""
    modules = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path for path in sources()}
    imported = {name: {one for one in imports_of(path) if one in modules and one != name} for name, path in modules.items()}
    TopologicalSorter(imported).prepare()  # raises CycleError, which names the modules of a circle


def imports_of(path: Path) -> set[str]:
    """The modules of memlane that a file imports, and what it imports from them, which may be modules too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = {f"{node.module}.{one.name}" for one in node.names}
            found |= names | ({node.module} if any(not is_module(name) for name in names) else set())
    return found


def is_module(name: str) -> bool:
    path = SOURCE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def test_every_module_says_what_it_is() -> None:
    assert [str(path) for path in sources() if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_no_package_is_called_for_odds_and_ends() -> None:
    names = {path.stem for path in sources()} | {path.parent.name for path in sources()}
    assert not names & {"utils", "util", "common", "helpers", "misc", "manager"}


def test_every_package_of_the_design_exists_and_is_described() -> None:
    rows = re.findall(r"^\| \d+ \| `(\w+)` \|", (ROOT / "docs" / "design.md").read_text(), re.MULTILINE)
    assert set(rows) == PACKAGES - {"__main__"}
    for name in rows:
        importlib.import_module(f"memlane.{name}")


def test_the_rows_of_the_design_are_the_layers_that_are_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one["type"] == "layers")
    checked = [set(re.findall(r"\w+", layer)) for layer in layers if "__main__" not in layer]
    rows: dict[int, set[str]] = {}
    for number, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", (ROOT / "docs" / "design.md").read_text(), re.MULTILINE):
        rows.setdefault(int(number), set()).add(name)
    assert [rows[number] for number in sorted(rows, reverse=True)] == checked

"""What the help of each command says, and what shells complete."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

from memlane.cli.app import COMMANDS, GROUPS, application
from memlane.cli.help import EXAMPLES
from tests.cli.conftest import Command

NAMES = (*COMMANDS, *(f"{group} {name}" for group, (_, names) in GROUPS.items() for name in names))
ROOT = Path(__file__).parents[2]


def test_every_command_has_examples() -> None:
    assert set(EXAMPLES) == set(NAMES)
    assert all(line.startswith(f"memlane {name}") for name, lines in EXAMPLES.items() for line in lines)


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_understood(name: str) -> None:
    """By the parser of the command line, which knows its options and what each of them takes; nothing runs."""
    for example in EXAMPLES[name]:
        words = shlex.split(example.partition(" > ")[0])[1:]
        command = typer.main.get_command(application(words))
        for depth in range(len(name.split())):
            command = command.commands[words[depth]]  # type: ignore[attr-defined]
        context = command.make_context(name, words[len(name.split()) :])
        assert context.command.name == name.split()[-1], example


@pytest.mark.parametrize("name", NAMES)
def test_help_explains_each_option_in_its_group_and_ends_in_examples(memlane: Command, name: str) -> None:
    answer = memlane(*name.split(), "--help")
    assert answer.code == 0
    assert answer.lines[-len(EXAMPLES[name]) :] == [f"  {line}" for line in EXAMPLES[name]]
    options = [line for line in answer.lines if re.match(r"  (-\w, )?--", line)]
    assert options
    for line in options:
        assert re.match(r"  (-\w, )?--[\w-]+( [^ <>]+)?( {2,}\w.*)?$", line), line  # a name for what it takes, and no Python type
    assert "<" not in answer.lines[0].replace("Swizzle<", "")
    assert "x>=" not in answer.out


def test_options_that_are_alike_stand_together(memlane: Command) -> None:
    text = memlane("trace", "--help").out
    groups = re.findall(r"^(\w.*):$", text, re.MULTILINE)
    assert groups == [
        "Arguments", "Launch of a .cu or .ptx file", "Compilation of a .cu file", "Probes", "What is looked at", "Where and how it runs",
        "Result", "Options", "Examples",
    ]  # fmt: skip
    assert text.startswith("Usage: memlane trace [OPTIONS] INPUT [-- ARGS]\n")


def test_the_list_of_commands_is_whole_sentences_and_the_exit_codes(memlane: Command) -> None:
    out = " ".join(memlane("--help").out.split())
    assert "..." not in out.replace("COMMAND [ARGS]...", "")
    assert "Exit codes: 0, done; 1, the program, its kernel or a file failed, or `check` found something; 2, the command line" in out
    assert "130, interrupted" in out
    assert all(said in out for said in COMMANDS.values())


@pytest.mark.parametrize("group", GROUPS)
def test_groups_list_their_commands_in_whole_sentences(memlane: Command, group: str) -> None:
    said, names = GROUPS[group]
    out = memlane(group, "--help").out
    assert said in out
    for name in names:
        text = getattr(import_module(f"memlane.cli.{group}"), name).__doc__
        assert f"{name} {text}" in " ".join(out.split())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("memlane tr", {"trace"}),
        ("memlane layout s", {"search", "show"}),
        ("memlane count --js", {"--json"}),
        ("memlane trace --scheme e", {"exposed"}),
        ("memlane trace --target emulator:a", {"emulator:a100"}),
        ("memlane export x.parquet --to c", {"clog2", "csv"}),
    ],
)
def test_shells_complete_commands_options_and_values(
    memlane: Command, line: str, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_MEMLANE_COMPLETE": "complete_bash"}.items():
        monkeypatch.setenv(name, value)
    answer = memlane()
    assert (answer.code, set(answer.out.split())) == (0, expected)


# -- the page of the command line --------------------------------------------------------------------------------------------------


def test_the_page_names_every_command_and_every_kind_of_json() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text()
    assert all(f"`memlane {name}`" in page for name in NAMES)
    kinds = set(re.findall(r'document_head\("(\w+)"\)', "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))))
    assert kinds
    assert set(re.findall(r"^\| `(\w+)` \|", page.partition("## JSON")[2], re.MULTILINE)) == kinds


@pytest.mark.parametrize("words", [("trace",), ("stencil", "plan"), ("lab", "latency")])
def test_a_help_loads_neither_what_runs_programs_nor_what_converts_values(words: tuple[str, ...]) -> None:
    """Which keeps it quick: every help answers within 0.25 s."""
    program = (
        "import sys; from memlane.cli import main; main(sys.argv[1:]);"
        "print(*sorted({'rich.console', 'pydantic', 'numpy', 'pyarrow', 'llvmlite', 'memlane.launch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program, *words, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"Usage: memlane {' '.join(words)} [OPTIONS]")
    assert done.stdout.splitlines()[-1] == ""

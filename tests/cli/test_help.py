"""What happens before a command begins: what is loaded, what the list of commands says, and Ctrl-C."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module

import pytest

import memlane
from memlane.cli import export, main, tracing
from memlane.cli.app import COMMANDS, GROUPS
from memlane.export import exporters
from memlane.instrument import SCHEMES, STAGINGS
from memlane.instrument.options import KINDS, SPACES
from memlane.instrument.visibility import STORES

INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # A test in the background inherits that Ctrl-C is ignored.
sys.meta_path.insert(0, Interrupting())
from memlane.cli import main
sys.exit(main(["trace", "nothing.py"]))
"""


def test_help_needs_none_of_the_commands() -> None:
    loaded = "' '.join({'numpy', 'rich', 'llvmlite', 'pyarrow'} & sys.modules.keys())"
    code = f"import sys; from memlane.cli import main; main(['--help']); print({loaded}, file=sys.stderr, end='')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"\n  {name} " in done.stdout for name in (*COMMANDS, *GROUPS))


ALL = [(name,) for name in COMMANDS] + [(name, function) for name, (_, functions) in GROUPS.items() for function in functions]
LIGHT = {
    "memlane",
    "memlane.chip",
    "memlane.checks",
    "memlane.data_files",
    "memlane.errors",
    "memlane.packages",
    "memlane.network",
    "memlane.number_format",
    "memlane.source",
}
"""What a help may load, besides `memlane.cli`: chips and networks, because the shell completes their names."""


PRINT_LOADED = """
import json, sys
from memlane.cli import main
for arguments in json.loads(sys.argv[1]):
    assert main(arguments) == 0
    print(json.dumps([*sys.modules]), file=sys.stderr)
"""


def loaded_by(*lines: Sequence[str], **environment: str) -> list[set[str]]:
    """Modules after each of several command lines, in a fresh process."""
    code = [sys.executable, "-c", PRINT_LOADED, json.dumps(lines)]
    done = subprocess.run(code, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return [set(json.loads(line)) for line in done.stderr.splitlines()]


def test_the_help_of_a_command_needs_nothing_that_it_runs_with() -> None:
    for command, loaded in zip(ALL, loaded_by(*([*command, "--help"] for command in ALL)), strict=True):
        assert not loaded & {"numpy", "pyarrow", "llvmlite", "jinja2", "cuda"}, command
        assert not loaded & {"rich.console", "pydantic"}, f"{command}: these take as long as the rest; a help answers within 0.25 s"
        ours = {".".join(name.split(".")[:2]) for name in loaded if name.split(".")[0] == "memlane"}
        assert ours <= {*LIGHT, "memlane.cli"}, command


def test_what_a_shell_completes_needs_no_more() -> None:
    (loaded,) = loaded_by([], _MEMLANE_COMPLETE="complete_bash", COMP_WORDS="memlane trace --scheme ", COMP_CWORD="3")
    assert "memlane.cli.trace" in loaded
    assert not loaded & {"numpy", "memlane.instrument"}


LOAD_OF_ONE = """
import os, sys
from importlib import import_module
from memlane.cli import later
failed = []
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        import_module(f"memlane.cli.{name}")
        later.load()
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        failed.append(name)
print(*failed)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks one process for each command")
@pytest.mark.parametrize(
    "names", [pytest.param(("compare",), id="compare"), pytest.param((*COMMANDS, *GROUPS), id="all", marks=pytest.mark.slow)]
)
def test_each_command_loads_what_it_needs_in_a_process_of_its_own(names: tuple[str, ...]) -> None:
    """The modules that a command announces may announce others while they are loaded."""
    done = subprocess.run([sys.executable, "-c", LOAD_OF_ONE, *names], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


def test_names_that_are_completed_are_those_that_there_are() -> None:
    assert (tuple(SCHEMES), STORES, STAGINGS) == (tracing.SCHEMES, tracing.STORES, tracing.STAGINGS)
    assert (tracing.SPACES, tracing.KINDS) == (SPACES, KINDS)
    assert sorted(exporters) == [*export.FORMATS]


def test_the_list_of_commands_says_what_they_say_themselves() -> None:
    for name, said in COMMANDS.items():
        text = inspect.getdoc(getattr(import_module(f"memlane.cli.{name}"), name)) or ""
        assert " ".join(text.partition("\n\n")[0].split()) == said, name
    for name, (_, functions) in GROUPS.items():
        assert all(callable(getattr(import_module(f"memlane.cli.{name}"), function)) for function in functions)


@pytest.mark.parametrize("module", ["memlane.cli.app", "typer", "memlane.cli.trace", "numpy", "memlane.instrument"])
def test_ctrl_c_while_modules_are_loaded_is_one_line(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, module], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "memlane: interrupted\n")


def test_ctrl_c_is_what_it_was_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert main(["--version"]) == 0
    assert signal.getsignal(signal.SIGINT) is before
    assert capsys.readouterr().out.split() == ["memlane", memlane.__version__]

"""What happens before a command begins: what is loaded, what the list of commands says, and Ctrl-C."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
from importlib import import_module

import pytest

import memlane
from memlane.cli import main
from memlane.cli.app import COMMANDS, GROUPS

INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # A test in the background inherits that Ctrl-C is ignored.
sys.meta_path.insert(0, Interrupting())
from memlane.cli import main
sys.exit(main(["trace", "--help"]))
"""


def test_help_needs_none_of_the_commands() -> None:
    loaded = "' '.join({'numpy', 'rich', 'llvmlite', 'pyarrow'} & sys.modules.keys())"
    code = f"import sys; from memlane.cli import main; main(['--help']); print({loaded}, file=sys.stderr, end='')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"\n  {name} " in done.stdout for name in (*COMMANDS, *GROUPS))


def test_the_list_of_commands_says_what_they_say_themselves() -> None:
    for name, said in COMMANDS.items():
        text = inspect.getdoc(getattr(import_module(f"memlane.cli.{name}"), name)) or ""
        assert " ".join(text.partition("\n\n")[0].split()) == said, name
    for name, (_, functions) in GROUPS.items():
        assert all(callable(getattr(import_module(f"memlane.cli.{name}"), function)) for function in functions)


@pytest.mark.parametrize("module", ["memlane.cli.app", "typer", "memlane.cli.trace", "numpy"])
def test_ctrl_c_while_modules_are_loaded_is_one_line(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, module], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "memlane: interrupted\n")


def test_ctrl_c_is_what_it_was_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert main(["--version"]) == 0
    assert signal.getsignal(signal.SIGINT) is before
    assert capsys.readouterr().out.split() == ["memlane", memlane.__version__]

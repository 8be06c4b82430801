"""The optional parts of memlane are the extras of its distribution, and the command that installs one fits the environment."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from memlane.packages import CORE, PARTS, install_command, pip_install

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=;! ]", requirement)[0] for requirement in requirements}


def test_the_parts_are_the_extras_for_users_with_the_packages_that_they_install() -> None:
    extras = {extra: names(wanted) - set(CORE) for extra, wanted in PROJECT["optional-dependencies"].items() if extra != "dev"}
    assert {part.extra: set(part.distributions) for part in PARTS} == extras
    assert set(CORE) == names(PROJECT["dependencies"])


def test_what_only_linux_has_is_marked_so() -> None:
    for part in PARTS:
        wanted = PROJECT["optional-dependencies"][part.extra]
        assert part.linux_only == all("sys_platform == 'linux'" in requirement for requirement in wanted), part


def environment(monkeypatch: pytest.MonkeyPatch, folder: Path, *, programs: tuple[str, ...] = ("pip",), pip: bool = True) -> None:
    """A process of the environment in `folder`, where the shell finds `programs` in its folder of programs."""
    monkeypatch.setattr(sys, "executable", str(folder / "bin" / "python"))
    monkeypatch.setattr(shutil, "which", lambda name: str(folder / "bin" / name) if name in programs else None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if pip else None)


def test_in_an_activated_environment_pip_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment(monkeypatch, tmp_path)
    assert install_command("cuda") == "pip install 'memlane[cuda]'"
    assert install_command() == "pip install memlane"
    assert pip_install("--upgrade", "nvidia-nvjitlink") == "pip install --upgrade nvidia-nvjitlink"


def test_elsewhere_the_interpreter_of_the_environment_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment(monkeypatch, tmp_path / ".venv", programs=())
    assert install_command("mpi") == f"{tmp_path}/.venv/bin/python -m pip install 'memlane[mpi]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("mpi") == ".venv/bin/python -m pip install 'memlane[mpi]'"
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")  # the pip of another Python
    assert install_command("mpi") == ".venv/bin/python -m pip install 'memlane[mpi]'"


def test_an_environment_without_pip_is_one_of_uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment(monkeypatch, tmp_path / "an env", programs=("uv",), pip=False)
    assert install_command("otf2") == f"uv pip install --python '{tmp_path}/an env/bin/python' 'memlane[otf2]'"

"""Today's kernels: how many of their sites are exact, and why the others are not."""

from __future__ import annotations

import re
from collections import Counter

import corpus_hopper
import corpus_today
import pytest
from corpus import KERNELS, Group, kept_ptx
from corpus_today import FOLDER

from memlane.audit import SiteExactness, exactness
from memlane.compile import assemble
from memlane.ptx import Module, parse
from memlane.targets import target


def verdicts(module: Module) -> tuple[SiteExactness, ...]:
    return exactness(module, assemble(module, arch="sm_90a").data)


def of_triton(kernel: str) -> tuple[SiteExactness, ...]:
    return verdicts(parse((FOLDER / f"{kernel}.ptx").read_text(), kernel))


@pytest.mark.parametrize(
    "kernel",
    [
        "persistent_product",  # what fills up the code behind its end repeats itself, and is never executed
        "scan",  # a store with a guard, which the assembler branches around
        "attention_of_keys",  # products that the assembler lets wait for each other, with a fence each
    ],
)
def test_all_sites_of_a_kernel_of_triton_are_exact(kernel: str) -> None:
    assert {(one.verdict, one.reason) for one in of_triton(kernel)} == {("exact", "")}


BEHIND = "ptxas moved it behind a branch, so that only lanes that need it access memory"
APART = "the assembled code may not bring the lanes of a warp together before it, so they may be grouped differently"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "others"),
    [
        pytest.param(corpus_today.GROUP, {BEHIND: 4}, id="triton"),
        pytest.param(corpus_hopper.GROUP, {APART: 13}, id="hopper"),  # behind a loop that waits for a barrier
    ],
)
def test_why_sites_of_todays_kernels_are_not_exact(group: Group, others: dict[str, int]) -> None:
    """At most so many; the assembler may change."""
    loaded = group.load(target("emulator:h200"))
    found = [one for module in dict.fromkeys(kernel.module for kernel in loaded.values()) for one in verdicts(module)]
    amounts = Counter(one.reason for one in found if one.reason)
    assert amounts <= Counter(others)


def test_the_files_of_triton_say_what_a_launch_needs() -> None:
    for case in corpus_today.GROUP.cases:
        assert corpus_today.shared_bytes(case.kernel) >= 0
        assert ".loc" in (FOLDER / f"{case.kernel}.ptx").read_text()


def test_kept_kernels_name_no_folder_of_a_machine() -> None:
    found = [path.name for path in KERNELS.rglob("*.ptx") if re.search(r'(?m)^\.file\s+\d+ "/', path.read_text(encoding="utf-8"))]
    assert found == []


def test_what_is_kept_of_a_compiled_kernel() -> None:
    text = ".version 9.4\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n.loc 1 3 5\nret;\n}\n"
    files = '.file 1 "/home/someone/venv/lib/python3.12/site-packages/triton/language/standard.py"\n.file 2 "mine.py"\n'
    kept = kept_ptx(parse(text + files, "k.ptx"))
    assert kept.startswith(".version 8.6\n")
    assert '"triton/language/standard.py"' in kept
    assert '"mine.py"' in kept
    assert "site-packages" not in kept

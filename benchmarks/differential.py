"""Does every instruction give on the GPU what it gives on the emulator?

Each form of an instruction that the emulator supports (see `instructions` and `cases`) is applied to edge values crossed with each other
and to random operands: 4096 tuples, 65536 where there is one operand, so that one of 16 bits takes all its values. `comparison` says what
counts as equal. Everything is assembled without fusing multiplications and additions. A form that the assembler refuses, or whose kernel
fails, is a row without a value; the others go on. Not tried: `cases.SKIPPED`.

Without a GPU (`--quick`, on few operands) the second road is an oracle in plain Python, written from the manual (`oracle`).

Prediction: no operand tuple differs; the approximate instructions stay within what the PTX manual promises.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from application import Application, applications, module, owners, refused_forms, run, without
from comparison import approximate_rows, exact_row, is_approximate
from emulated import refusals
from harness import Row
from instructions import GROUPS, spellings
from operands import Bits
from oracle import expected
from running import each_case, failed, measure, parser

from cases import Case, cases
from memlane.compile import assemble
from memlane.driver import Device
from memlane.emulate import Emulator
from memlane.errors import CompileError, MemlaneError
from memlane.launch import Target
from memlane.ptx import print_module
from memlane.targets import target

SOURCES = [
    "src/memlane/ptx",
    "src/memlane/compile",
    "src/memlane/emulate",
    "src/memlane/driver",
    "benchmarks/application.py",
    "benchmarks/cases.py",
    "benchmarks/comparison.py",
    "benchmarks/differential.py",
    "benchmarks/emulated.py",
    "benchmarks/exact.py",
    "benchmarks/instructions.py",
    "benchmarks/operands.py",
    "benchmarks/oracle.py",
    "benchmarks/oracle_carry.py",
    "benchmarks/oracle_compare.py",
    "benchmarks/oracle_convert.py",
    "benchmarks/oracle_exchange.py",
    "benchmarks/oracle_floating.py",
    "benchmarks/oracle_integer.py",
    "benchmarks/oracle_memory.py",
    "benchmarks/oracle_table.py",
    "benchmarks/oracle_video.py",
]
_PART = re.compile(r"(\w+) (\d+):(\d+)")
_OF_OTHER_CHIPS = re.compile(r"requires \.target (sm_\w+)|not supported on \.target")


class KernelFailedError(Exception):
    """The target is lost, in this application; the rows before it are there."""

    def __init__(self, done: list[Row], at: Application, after: Sequence[Application], reason: str) -> None:
        super().__init__(reason)
        self.done, self.at, self.after, self.reason = done, at, after, reason


def group_cases(group: str) -> list[Case]:
    """Return the cases of a group, those with the same operands beside each other."""
    return list(_cases_by_group().get(group, ()))


@cache
def _cases_by_group() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for spelling in spellings():
        found.setdefault(spelling.group, []).extend(cases(spelling))
    return {group: sorted(listed, key=lambda case: case.operands) for group, listed in found.items()}


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    """Run a group of `GROUPS`, or a part of one, such as `integer 24:48`."""
    part = _PART.fullmatch(name)
    group = part[1] if part else name
    listed = group_cases(group)
    start, stop = (int(part[2]), int(part[3])) if part else (0, len(listed))
    where = strict(options.target)
    try:
        return compare(applications(listed[start:stop], options.quick), where, beside(where))
    except KernelFailedError as failure:
        if not isinstance(where, Device):
            raise
        return [*failure.done, *_in_parts(group, listed, failure, options)]


def _in_parts(group: str, listed: list[Case], failure: KernelFailedError, options: argparse.Namespace) -> Iterator[Row]:
    """Run the rest of a group whose kernel failed, in new processes: that kernel in halves, to find the form, then the kernels after it."""
    numbers = {case.name: number for number, case in enumerate(listed)}
    failing = [numbers[case.name] for case in failure.at.cases]
    later = [numbers[case.name] for one in failure.after for case in one.cases]
    if len(failing) == 1:
        yield failed(listed[failing[0]].name, failure.reason)
        pieces = []
    else:
        middle = failing[0] + len(failing) // 2
        pieces = [(failing[0], middle), (middle, failing[-1] + 1)]
    if later:
        pieces.append((later[0], later[-1] + 1))
    for rows in each_case([f"{group} {low}:{high}" for low, high in pieces], run_case, options):
        yield from rows


def strict(name: str) -> Target:
    """Return the target, assembling without fusing."""
    return Device(int(name.partition(":")[2] or 0), fmad=False) if name.startswith("cuda") else target(name)


def beside(where: Target) -> Target | None:
    """Return an emulator to compare a GPU with; none for an emulator."""
    return Emulator(where.chip) if where.modelled is False else None


# -- comparing -------------------------------------------------------------------------------------------------------------------


def compare(applied: Sequence[Application], where: Target, other: Target | None) -> list[Row]:
    """Run the kernels here and on the other target, or compare with the oracle. Raises KernelFailedError."""
    rows: list[Row] = []
    for number, one in enumerate(applied):
        kept = emulated_part(one)
        if other is not None:
            kept, refused = assembled_part(kept, architecture(where))
            rows += refused
        if not kept.cases:
            continue
        text = module([kept])
        try:
            found = run(kept, where.load(text), where)
        except MemlaneError as error:
            raise KernelFailedError(rows, kept, applied[number + 1 :], f"{type(error).__name__}: {error}") from error
        operands = kept.operands()
        if other is None:
            rows += against_oracle(kept, operands, found)
        else:
            rows += _against(kept, operands, run(kept, other.load(text), other), found)
    return rows


def emulated_part(one: Application) -> Application:
    """Return the cases without the forms that the emulator does not support, which the support page lists."""
    kernel = module([one]).kernels[one.name]
    owner = owners(kernel)
    refused = {owner[index] for index in refusals(module([one]), kernel)}
    return without(one, {number for number in refused if number is not None})


def architecture(where: Target) -> str:
    """Return the architecture for which the forms are assembled."""
    return "sm_{}{}".format(*where.compute_capability) if isinstance(where, Device) else "sm_90"


def assembled_part(one: Application, arch: str) -> tuple[Application, list[Row]]:
    """Return the cases without the forms that the assembler rejects, and rows for these. A form of newer chips does not count as a miss."""
    rows: list[Row] = []
    while one.cases:
        text = module([one])
        try:
            assemble(text, arch=arch, fmad=False)
        except CompileError as failure:
            refused = refused_forms(print_module(text), failure)
            if not refused:
                return without(one, set(range(len(one.cases)))), [*rows, *(failed(case.name, str(failure)) for case in one.cases)]
            rows += [_refused(one.cases[number].name, said) for number, said in sorted(refused.items())]
            one = without(one, set(refused))
        else:
            break
    return one, rows


def _refused(name: str, said: str) -> Row:
    row = failed(name, f"the assembler: {said}")
    return replace(row, reach=None) if _OF_OTHER_CHIPS.search(said) else row


def _against(one: Application, operands: list[Bits], emulated: list[list[Bits]], found: list[list[Bits]]) -> list[Row]:
    rows: list[Row] = []
    for case, here, there in zip(one.cases, emulated, found, strict=True):
        rows += judged(case, operands, here, there, ("emulator", "GPU"))
    return rows


def judged(case: Case, operands: list[Bits], here: list[Bits], there: list[Bits], names: tuple[str, str]) -> list[Row]:
    """Compare two results of a form by the criterion of its kind."""
    if is_approximate(case):
        return approximate_rows(case, operands, here, there, names)
    return [exact_row(case, operands, here, there, names)]


def against_oracle(one: Application, operands: list[Bits], found: list[list[Bits]]) -> list[Row]:
    """Compare the results of a kernel with the oracle's. A form without an entry in the oracle is a miss."""
    rows: list[Row] = []
    for case, results in zip(one.cases, found, strict=True):
        truth = expected(case, operands, one.count)
        if truth is None:
            rows.append(failed(case.name, "the oracle does not know this form"))
        else:
            rows += judged(case, operands, truth, results, ("oracle", "emulator"))
    return rows


def main() -> None:
    accepted = parser(__doc__)
    accepted.set_defaults(limit=180.0)  # room to look for a form that makes its kernel fail
    options = accepted.parse_args()
    part = options.case is not None and _PART.fullmatch(options.case)
    measure("differential", [options.case] if part else list(GROUPS), run_case, options)


if __name__ == "__main__":
    main()

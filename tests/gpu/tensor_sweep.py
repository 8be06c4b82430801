"""What a GPU does with copies of boxes by tensor maps, simplest first, a line for each copy.

    python -m tests.gpu.tensor_sweep                      on the first GPU, a minute at most
    python -m tests.gpu.tensor_sweep --target emulator    the same without one

A fault ends everything in its process, so copies run in processes, one after another and none longer than 8 seconds: one runs until a copy
fails, then the next begins with the next class of copies, after a kernel without tensor maps has shown that the GPU is well. The first that
fails runs again under `compute-sanitizer`, if there is one. What is compared with is NumPy, so that nothing is compiled but kernels.

Predicted: all copies are the same, and those that are provoked at the end fail with the error that stands there.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memlane.errors import MemlaneError
from memlane.launch import Target
from memlane.ptx import parse
from memlane.targets import target as open_target
from tests.emulate.combined import COMBINED
from tests.emulate.tensor_boxes import (
    MADE_CASE,
    REDUCED,
    THREADS,
    Case,
    cases,
    load_program,
    loaded_box,
    placed,
    run_copied,
    run_load,
    run_made,
    run_multicast,
    run_store,
    stored,
    stored_array,
)
from tests.measure.tiles import IMAGE, doubling

LIMIT_S, TURN_S, BUDGET_S = 8.0, 3.0, 56.0
"""Of a process, how long it begins new trials, and of all together."""
FIRST_LIMIT_S, SANITIZER_LIMIT_S = 20.0, 15.0
"""Of the process that loads the driver for the first time, and of the one under the sanitizer."""
ILLEGAL, MISALIGNED = "CUDA_ERROR_ILLEGAL_INSTRUCTION", "CUDA_ERROR_MISALIGNED_ADDRESS"
SAME = "same"


@dataclass(frozen=True)
class Trial:
    """A copy, and what it says: `same`, or where it differs. One that is provoked has the error that a GPU is to give."""

    group: str
    label: str
    run: Callable[[Target], str]
    error: str = ""


def _compared(left: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic]) -> str:
    ours, theirs = left.reshape(-1).view(np.uint8), wanted.reshape(-1).view(np.uint8)
    wrong = np.flatnonzero(ours != theirs)
    return SAME if not len(wrong) else f"differs in {len(wrong)} bytes: {wrong[:8]} are {ours[wrong[:8]]}, not {theirs[wrong[:8]]}"


def _loaded(case: Case, space: str = "shared::cluster") -> Callable[[Target], str]:
    def run(target: Target) -> str:
        left, host = run_load(target, case, space), case.host()
        if case.fill != "nan":
            return _compared(left, loaded_box(case, host))
        word = f"u{host.dtype.itemsize}"
        holes = placed(np.broadcast_to(~case.inside(), case.taken).astype(word), case.swizzle).view(word) != 0
        outside = left.view(word)[holes]
        said = _compared(np.where(holes, 0, left.view(word)), np.where(holes, 0, loaded_box(case, host).view(word)))
        numbers = (outside.astype(np.uint32) << 16).view(np.float32) if case.element == "bf16" else outside.view(host.dtype)
        said = said if np.isnan(numbers).all() else f"numbers outside; inside {said}"
        return f"{said} (outside: {', '.join(f'{int(bits):#x}' for bits in np.unique(outside)[:3])})"

    return run


def _stored(case: Case) -> Callable[[Target], str]:
    def run(target: Target) -> str:
        host = case.host()
        box = np.random.default_rng(case.seed + 100).integers(-100, 100, case.taken).astype(host.dtype)
        return _compared(run_store(target, case, box), stored_array(case, host, box))

    return run


def _reduced(operation: str, dtype: str, padding: int = 0) -> Callable[[Target], str]:
    def run(target: Target) -> str:
        width = 40 - padding
        case = Case((30, width), (8, 16), (25, 32), dtype, padding=padding)
        random = np.random.default_rng(5)
        host, box = (random.integers(0, 60, shape).astype(dtype) for shape in ((30, 40), case.box))
        wanted = host.copy()
        wanted[25:30, 32:width] = COMBINED[operation](host[25:30, 32:width], box[:5, : width - 32])
        return _compared(run_store(target, case, box, operation, host), wanted)

    return run


def _turned(begin: int) -> Callable[[Target], str]:
    """A box that begins inside the pattern of its swizzle: pieces change places by their address."""

    def run(target: Target) -> str:
        case = Case((50, 48), (16, 32), (2, 4), swizzle="128B")
        tiles, out = case.tensor_map(target, target.array(case.host())), target.zeros(2048, np.uint8)
        target.load(load_program(2, begin=begin))["load"][1, THREADS](tiles, out, out.nbytes, 4, 2)
        plain = loaded_box(replace(case, swizzle="none"), case.host()).reshape(16, 8, 16)
        wanted = np.empty_like(plain)
        for row in range(16):
            for piece in range(8):
                wanted[row, piece ^ ((row + begin // 128) % 8)] = plain[row, piece]
        return _compared(out.numpy(), wanted)

    return run


def _promoted(promotion: str) -> Callable[[Target], str]:
    def run(target: Target) -> str:
        case = cases()[4]
        tiles = target.tensor_map(target.array(case.host()), case.box, promotion=promotion)
        out = target.zeros(tiles.tiling.box_bytes, np.uint8)
        target.load(load_program(2))["load"][1, THREADS](tiles, out, out.nbytes, *reversed(case.at))
        return _compared(out.numpy(), loaded_box(case, case.host()))

    return run


def _shared_out(mask: int) -> Callable[[Target], str]:
    def run(target: Target) -> str:
        case = Case((50, 48), (8, 32), (45, -4), swizzle="128B")
        box = loaded_box(case, case.host())
        wanted = np.stack([box if mask >> rank & 1 else np.zeros_like(box) for rank in range(4)])
        return _compared(run_multicast(target, case, 4, mask), wanted)

    return run


def _copied(target: Target) -> str:
    case = Case((40, 64), (8, 32), (7, 20))
    wanted = case.host()
    wanted[15:23, 20:52] = wanted[7:15, 20:52]
    wanted[7:15, 20:52] *= 2
    return _compared(run_copied(target, case), wanted)


def _made(target: Target) -> str:
    return _compared(run_made(target), loaded_box(MADE_CASE, MADE_CASE.host()))


def _doubled(target: Target) -> str:
    call, tiles, results, out = doubling(target)
    call(tiles, results)
    return _compared(out.numpy(), 2 * IMAGE)


HEALTHY = """.version 8.0
.target sm_90
.address_size 64
.visible .entry healthy(.param .u64 array) {
    .reg .b32 t; .reg .b64 a;
    ld.param.u64 a, [array]; mov.u32 t, %tid.x; mad.wide.u32 a, t, 4, a; mul.lo.u32 t, t, 3; st.global.u32 [a], t; ret;
}"""


def _healthy(target: Target) -> str:
    out = target.zeros(THREADS, np.uint32)
    target.load(parse(HEALTHY, "healthy.ptx"))["healthy"][1, THREADS](out)
    return _compared(out.numpy(), 3 * np.arange(THREADS, dtype=np.uint32))


def _misplaced(target: Target) -> str:
    tiles, out = target.tensor_map(target.zeros((64, 32), np.float32), (8, 16)), target.zeros(512, np.uint8)
    target.load(load_program(2, begin=16))["load"][1, THREADS](tiles, out, 512, 0, 0)
    return _compared(out.numpy(), np.zeros(512, np.uint8))


def trials() -> list[Trial]:
    """Those that are to be right, class after class, and last those that are provoked."""
    found = [Trial("none", "a kernel without tensor maps", _healthy)]
    plain = Case((64, 64), (16, 16), (0, 0))
    known = (plain, *(case for case in cases() if case.fill == "zeros"))
    simple = sorted((case for case in known if case.swizzle == "none" and case.steps is None), key=lambda case: len(case.shape))
    for name, of_class in (
        ("plain", simple),
        ("swizzle", [case for case in known if case.swizzle != "none" and case.steps is None]),
        ("steps", [case for case in known if case.steps is not None]),
    ):
        found += [Trial(f"load, {name}, {len(case.shape)}d", _named(case), _loaded(case)) for case in of_class]
        found += [Trial(f"store, {name}, {len(case.shape)}d", _named(stored(case)), _stored(stored(case))) for case in of_class]
    blind = [case for case in cases() if case.fill == "nan"]
    blind += [Case((4, 16), (1, 16), (0, x), dtype, fill="nan", element=element) for dtype, element, x in NANS]
    found += [Trial("load, filled with nan", _named(case), _loaded(case)) for case in blind]
    found += [
        Trial(f"reduce, {dtype}", f"{operation} of {dtype}", _reduced(operation, dtype)) for operation, dtype in sorted(REDUCED, key=_dtype)
    ]
    found += [Trial("swizzle by address", f"box at byte {begin}", _turned(begin)) for begin in (128, 256, 640)]
    found += [Trial("own block", _named(case), _loaded(case, "shared::cta")) for case in simple[:3]]
    found += [Trial("l2", promotion, _promoted(promotion)) for promotion in ("64B", "128B", "256B")]
    found += [Trial("several blocks", f"mask {mask:#06b}", _shared_out(mask)) for mask in (0b1111, 0b0110)]
    found += [Trial("map copied by the kernel", "2 x 8 x 32", _copied), Trial("map made by the kernel", "8 x 16", _made)]
    found += [Trial("cuda", "tiles doubled", _doubled)]
    found += [Trial("larger than the array", _named(case), _loaded(case)) for case in (Case((6, 16), (8, 32), (0, 0)),)]
    for dtype, x in (("f4", 1), ("f4", 2), ("u1", 8), ("f8", 1)):
        case = Case((64, 64), (8, 16), (0, x), dtype)
        found += [Trial("provoked", f"load, {_named(case)}", _loaded(case), ILLEGAL)]
    for at in ((0, 2), (0, -4), (-8, 0)):
        case = Case((64, 64), (8, 16), at)
        found += [Trial("provoked", f"store, {_named(case)}", _stored(case), ILLEGAL)]
    found += [Trial("provoked", "load, 16 bytes into shared memory", _misplaced, MISALIGNED)]
    found += [Trial("unknown", "add of f4, rows of 140 bytes: same if it ends with the row", _reduced("add", "f4", 5))]
    return [*found, Trial("none", "a kernel without tensor maps, at the end", _healthy)]


def _dtype(reduced: tuple[str, str]) -> str:
    return reduced[1]


NANS = (("f2", "", 96), ("u2", "bf16", 96), ("f4", "", 96), ("f8", "", 96))


def _named(case: Case) -> str:
    shape, box, at = (",".join(map(str, one)) for one in (case.shape, case.box, case.at))
    steps = f" steps {','.join(map(str, case.steps))}" if case.steps else ""
    return f"{case.element or case.dtype}[{shape}] box {box} at {at}{steps} {case.swizzle if case.swizzle != 'none' else ''}".rstrip()


def run_from(first: int, last: int, target: Target) -> int:
    """Runs trials until one fails or the time of a process is spent, and prints for each its number and what it said."""
    begun = time.monotonic()
    for number, trial in enumerate(trials()[first:last], first):
        if time.monotonic() - begun > TURN_S:
            break
        print(f"begin {number}", flush=True)
        try:
            said = trial.run(target)
        except MemlaneError as error:
            name = re.search(r"CUDA_ERROR_\w+", str(error))
            print(f"error {number} {name[0] if name else error}", flush=True)
            return 1
        print(f"ended {number} {said}", flush=True)
    return 0


@dataclass
class Sweep:
    """The processes of one run. `spent` tells the time since it began."""

    target: str
    spent: Callable[[], float]
    sanitized: bool = False
    unexpected: int = 0

    def run(self) -> int:
        listed = trials()
        number = self._process(listed, 0, 1, FIRST_LIMIT_S)[0] + 1
        while number < len(listed):
            if self.spent() > BUDGET_S - LIMIT_S:
                print(f"no time left for {len(listed) - number} more")
                return 1
            trial = listed[number]
            end = number + 1 if trial.error else next((at for at, one in enumerate(listed) if one.error and at > number), len(listed))
            reached, failed = self._process(listed, number, end)
            number = reached + 1
            if not failed:
                continue
            trial = listed[reached]
            if not trial.error:
                self._sanitize(reached)
                number = next((at for at, one in enumerate(listed) if at > reached and one.group != trial.group), len(listed))
                print(f"  left out: {number - reached - 1} more of {trial.group!r}")
                self._process(listed, 0, 1)
        print(f"{self.unexpected} not as predicted, {self.spent():.0f} s")
        return int(self.unexpected > 0)

    def _process(self, listed: list[Trial], first: int, last: int, limit_s: float = LIMIT_S) -> tuple[int, bool]:
        """Runs trials in a process; returns the number of the last that began, and whether it failed."""
        command = [sys.executable, "-m", "tests.gpu.tensor_sweep", "--target", self.target, "--from", str(first), "--to", str(last)]
        output = _output_of(command, limit_s)
        reached, failed, over = first, "no trial", False
        for line in output.splitlines():
            word, _, rest = line.partition(" ")
            if word not in ("begin", "ended", "error") or not rest[:1].isdigit():
                continue
            reached, said = int(rest.split(" ", 1)[0]), rest.partition(" ")[2]
            failed = "" if word == "ended" else said or "did not end"
            if word != "begin":
                over = word == "error"
                self._print(listed[reached], said)
        if failed and not over and reached > first:
            return reached - 1, False  # it had less than the whole time: once more, in a process of its own
        if failed and not over:
            last_line = output.strip().splitlines()[-1:] or ["nothing"]
            self._print(listed[reached], f"{failed} within {limit_s:.0f} s or its process broke: {last_line[0][:200]}")
        return reached, bool(failed)

    def _print(self, trial: Trial, said: str) -> None:
        wanted = trial.error or SAME
        on_gpu = self.target.startswith("cuda")
        right = said.startswith(wanted) if on_gpu or not trial.error else not said.startswith(SAME)
        self.unexpected += not right and trial.group != "unknown"
        print(f"{'as predicted' if right else 'NOT PREDICTED'} | {trial.group} | {trial.label} | {said[:300]}", flush=True)

    def _sanitize(self, number: int) -> None:
        tool = shutil.which("compute-sanitizer") or next(map(str, Path("/usr/local/cuda/bin").glob("compute-sanitizer")), None)
        if self.sanitized or tool is None or self.spent() > BUDGET_S - SANITIZER_LIMIT_S:
            return
        self.sanitized = True
        command = [
            tool,
            sys.executable,
            "-m",
            "tests.gpu.tensor_sweep",
            "--target",
            self.target,
            "--from",
            str(number),
            "--to",
            str(number + 1),
        ]
        lines = [line for line in _output_of(command, SANITIZER_LIMIT_S).splitlines() if line.startswith("=") and "Host Frame" not in line]
        print("\n".join(f"  {line}" for line in lines[:10]), flush=True)


def _output_of(command: list[str], limit_s: float) -> str:
    """What a process writes until it ends, or has to."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as late:
        written = late.stdout or b""
        return written.decode(errors="replace") if isinstance(written, bytes) else written
    return done.stdout


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--target", default="cuda:0")
    options.add_argument("--from", dest="first", type=int)
    options.add_argument("--to", dest="last", type=int)
    chosen = options.parse_args()
    if chosen.first is not None:
        return run_from(chosen.first, chosen.last, open_target(chosen.target))
    if chosen.target.startswith("cuda"):
        from cuda.bindings import nvjitlink

        print(f"nvJitLink {'.'.join(map(str, nvjitlink.version()))}", flush=True)
    begun = time.monotonic()
    return Sweep(chosen.target, lambda: time.monotonic() - begun).run()


if __name__ == "__main__":
    raise SystemExit(main())

"""How many of the `.cu` files of NVIDIA's cuda-samples load, and why do the others not?

    git clone https://github.com/NVIDIA/cuda-samples && git -C cuda-samples checkout c94ff366aed18c797b8a85dfaac7817b0228b420
    python benchmarks/loading.py cuda-samples

Each file is compiled to a module in a process of its own, with `Common` and the sample's own folders to search for headers. A file that
does not load is put down to the first of these that its error names: it needs a header that neither CUDA's wheels nor the sample have
(cuRAND, cuFFT, cuDLA, DirectX), it has no kernel of its own (those that a library launches are none), or a kernel in it launches kernels.

Prediction: nothing is left over. At commit 1e50dac 131 of 175 files loaded, with 317 kernels.
"""

from __future__ import annotations

import argparse
import multiprocessing
from pathlib import Path

from harness import Row, write

from memlane.compile import cuda
from memlane.errors import MemlaneError

SOURCES = ["src/memlane/compile", "src/memlane/ptx", "benchmarks/loading.py"]
REASONS = {
    "a header that is not there": ("was not found; name its directory", "Header not found: "),
    "no kernel of its own": (" has no kernel",),
    "kernels that launch kernels": ("(dynamic parallelism)",),
}
"""Why a file does not load, and what its error then contains."""
OTHER = "another reason"


def load(path: Path, include: list[Path]) -> tuple[str, int]:
    """The reason why the file does not load, or an empty text, and the number of its kernels."""
    try:
        return "", len(cuda(path, include=include).kernels)
    except MemlaneError as error:
        text = str(error)
        if "only templates of kernels" in text and "Header not found" not in text:
            return OTHER, 0
        return next((reason for reason, signs in REASONS.items() if any(sign in text for sign in signs)), OTHER), 0


def folders(samples: Path, path: Path) -> list[Path]:
    """Where the headers of a sample are: `Common`, the file's folder, and folders of headers in it or beside it."""
    own = [path.parent, *(path.parent / name for name in ("inc", "include", "../inc", "../include"))]
    return [folder for folder in (samples / "Common", *own) if folder.is_dir()]


def loaded(samples: Path, path: Path, limit_s: float) -> tuple[str, int]:
    """As `load`, in a process of its own that may take `limit_s` seconds."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        try:
            return pool.apply_async(load, (path, folders(samples, path))).get(limit_s)
        except multiprocessing.TimeoutError:
            return OTHER, 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("samples", type=Path, help="a clone of cuda-samples")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that one file may take")
    arguments = parser.parse_args()
    paths = sorted(arguments.samples.rglob("*.cu"))
    found = {path.relative_to(arguments.samples): loaded(arguments.samples, path, arguments.limit) for path in paths}
    rows = [
        Row("cuda-samples", "files", len(found), "files"),
        Row("cuda-samples", "files that load", sum(not reason for reason, _ in found.values()), "files"),
        Row("cuda-samples", "kernels that load", sum(kernels for _, kernels in found.values()), "kernels"),
    ]
    for reason in (*REASONS, OTHER):
        names = [path.stem for path, (why, _) in found.items() if why == reason]
        reach = 0.0 if reason == OTHER else None
        rows.append(Row("cuda-samples", f"files that do not: {reason}", len(names), "files", reach, note=", ".join(names)))
    write("loading", rows, chip="cpu")


if __name__ == "__main__":
    main()

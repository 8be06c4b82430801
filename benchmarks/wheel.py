"""Does what could be published install and run in a bare environment, for every Python that memlane supports?

    make wheel-check                                    # the same as: make wheel, then
    python benchmarks/wheel.py dist                     # for a clean checkout; --extras "" leaves out the large optional parts
    python benchmarks/wheel.py dist --python /opt/python3.14/bin/python3

The wheel and the source distribution must hold the files that git knows, and nothing else. Then, for each Python from 3.11 to 3.14 that is
found (`python3.X` in the PATH, among pyenv's versions, or given), the wheel is installed into a new virtual environment that has nothing
else, and the README's demo is run there on the examples of the source distribution. With `--extras cuda,numba,triton` the optional parts
are then installed by the very command that `memlane doctor` prints, and a kernel of each front end is counted. Where a Python is not found,
pip is asked whether wheels for it exist.

Prediction: both hold what they should, and every Python that is found makes the demo's two findings.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

from harness import ROOT, Row, write

SOURCES = ["src/memlane/cli", "src/memlane/packages.py", "pyproject.toml", "benchmarks/wheel.py"]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
FOUND = {"bank-conflict", "uncoalesced-global"}
"""Rules of the findings in the demo."""
PROGRAM = """\
import sys
import numpy as np
import memlane as ml

target = ml.target("emulator:h200")
n = 1024
a, out = target.array(np.ones(n, "f4")), target.empty(n, "f4")
if sys.argv[1] == "cuda":
    text = 'extern "C" __global__ void scale(float* out, const float* in) { int i = 256 * blockIdx.x + threadIdx.x; out[i] = 2 * in[i]; }'
    counts = ml.count(target.load(ml.cuda(text))["scale"][4, 256], out, a)
elif sys.argv[1] == "numba":
    from numba import cuda

    def scale(out, a):
        i = cuda.grid(1)
        out[i] = 2 * a[i]

    counts = ml.count(target.load(ml.numba(scale, "void(float32[::1], float32[::1])"))["scale"][4, 256], out, a)
else:
    import triton.language as tl

    def scale(out, a, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, 2 * tl.load(a + i))

    counts = ml.count(target.load(ml.triton(scale, "*fp32:16, *fp32:16", {"BLOCK": 256}))["scale"][4,], out, a)
assert (out.numpy() == 2).all()
print(counts.total().sectors)
"""
"""Doubles 1024 floats by a kernel of the front end in its first argument, and prints the sectors: 2 * 4096 / 32."""
SECTORS = "256"


def known_files() -> set[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return set(listed.splitlines())


def contents(wheel: Path, source: Path) -> list[Row]:
    """Return how many files each of the two lacks, and has too many of."""
    tracked = known_files()
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    with tarfile.open(source) as archive:
        sent = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()} - {"PKG-INFO"}
    expected = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    rows = []
    for case, held, wanted in (("wheel", packed, expected), ("source distribution", sent, tracked)):
        for metric, names in (("files missing", wanted - held), ("files too many", held - wanted)):
            rows.append(Row(case, metric, len(names), "files", 0, note=", ".join(sorted(names)[:5])))
    return rows


def interpreter(version: str, given: list[str]) -> str | None:
    """Return a Python of this version: one of those given, `python3.X` in the PATH, or the newest among pyenv's versions."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in (*given, f"python{version}", *map(str, reversed(kept))):
        found = shutil.which(candidate)
        program = "import sys; print('%d.%d' % sys.version_info[:2])"
        if found and subprocess.run([found, "-c", program], capture_output=True, text=True).stdout.strip() == version:
            return found
    return None


class Trial:
    """A virtual environment that has nothing but pip, and a folder with the examples to work in."""

    def __init__(self, python: str, folder: Path, examples: Path) -> None:
        subprocess.run([python, "-m", "venv", str(folder / "env")], check=True)
        self.folder = folder
        self.programs = folder / "env" / "bin"
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        dropped = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
        self.environment = {name: value for name, value in os.environ.items() if name not in dropped}
        self.environment |= {"PATH": path, "MEMLANE_CACHE_DIR": str(folder / "cache"), "COLUMNS": "120"}
        shutil.copytree(examples, folder / "examples")

    def run(self, *command: str) -> tuple[str, float]:
        """Return the output of a command and its seconds. Raises RuntimeError with the end of its errors."""
        start = time.perf_counter()
        done = subprocess.run(list(command), cwd=self.folder, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {' '.join((done.stderr or done.stdout).split())[-200:]}")
        return done.stdout, time.perf_counter() - start


def demo(case: str, trial: Trial, wheel: Path) -> list[Row]:
    """Run the commands of `make demo` and return their rows."""
    _, install_s = trial.run("pip", "install", "--quiet", str(wheel))
    _, trace_s = trial.run("memlane", "trace", "examples/transpose.py", "--target", "emulator:h200", "--force")
    printed, explain_s = trial.run("memlane", "explain", "transpose.parquet", "--json")
    found = {one["rule"] for one in json.loads(printed)["findings"]}
    trial.run("memlane", "report", "transpose.parquet", "-o", "page.html")
    return [
        Row(case, "findings of the demo", len(found & FOUND), "findings", len(FOUND), "higher"),
        Row(case, "time to install", install_s, "s"),
        Row(case, "time of the demo", trace_s + explain_s, "s"),
    ]


def optional(case: str, trial: Trial, extras: list[str]) -> list[Row]:
    """Install each part by the command that the doctor prints for it, and count a kernel of its front end."""
    rows = []
    (trial.folder / "program.py").write_text(PROGRAM)
    for extra in extras:
        said, _ = trial.run("memlane", "doctor")
        command = next((line.partition("; ")[2].split("; ")[-1] for line in said.splitlines() if f"memlane[{extra}]" in line), "true")
        try:
            trial.run("sh", "-c", command)
            printed, _ = trial.run("python", "program.py", extra)
            rows.append(Row(case, f"a kernel with [{extra}] counts {SECTORS} sectors", float(printed == f"{SECTORS}\n"), "", 1.0, "higher"))
        except RuntimeError as error:
            rows.append(Row(case, f"a kernel with [{extra}] counts {SECTORS} sectors", 0.0, "", 1.0, "higher", note=str(error)))
    return rows


def resolved(case: str, version: str, wheel: Path, extras: list[str]) -> list[Row]:
    """Return whether wheels of all dependencies exist for a Python that is not installed here."""
    rows = []
    for extra in ("", *extras):
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)
        only = ["--dry-run", "--ignore-installed", "--only-binary=:all:", "--python-version", version, "--implementation", "cp"]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", *only, "--target", folder, wanted], capture_output=True, text=True
            )
        note = "no interpreter of this version was found here, so nothing was run"
        metric = f"wheels of the dependencies exist{f' with [{extra}]' if extra else ''}"
        rows.append(Row(case, metric, float(done.returncode == 0), "", 1.0, "higher", note=note))
    return rows


def tried(version: str, python: str | None, wheel: Path, examples: Path, extras: list[str]) -> list[Row]:
    case = f"Python {version}"
    if python is None:
        return resolved(case, version, wheel, extras)
    with tempfile.TemporaryDirectory() as folder:
        try:
            trial = Trial(python, Path(folder), examples)
            return [*demo(case, trial, wheel), *optional(case, trial, extras)]
        except (RuntimeError, subprocess.CalledProcessError) as error:
            return [Row(case, "findings of the demo", None, "findings", len(FOUND), "higher", note=str(error))]


def only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{folder} must hold one {pattern}, and has {len(found)}: run make wheel")
    return found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path, help="the folder with the wheel and the source distribution")
    parser.add_argument("--python", action="append", default=[], help="an interpreter to try too; may be given several times")
    parser.add_argument("--extras", default="cuda,numba,triton", help="optional parts to install and to run a kernel of")
    options = parser.parse_args()
    wheel, source = only(options.dist, "*.whl").resolve(), only(options.dist, "*.tar.gz").resolve()
    extras = [extra for extra in options.extras.split(",") if extra]
    rows = contents(wheel, source)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
        examples = next(Path(folder).glob("*/examples"))
        for version in VERSIONS:
            rows += tried(version, interpreter(version, options.python), wheel, examples, extras)
    write("wheel", rows, chip="cpu")


if __name__ == "__main__":
    main()

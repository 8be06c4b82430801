"""Kernels that fail on the device. Each runs in a process of its own, because the CUDA context does not survive it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memlane.driver import Device

pytestmark = pytest.mark.gpu

SCRIPT = """
import sys
from pathlib import Path
from memlane.driver import Device
from memlane.errors import MemlaneError
from memlane.ptx import parse

gpu = Device(0)
path = Path(sys.argv[1])
kernels = gpu.load(parse(path.read_text(encoding="utf-8"), path.name))
array = gpu.zeros(1, "i4")
{body}
for attempt in range(2):
    try:
        gpu.sync()
    except MemlaneError as error:
        print(f"{{type(error).__name__}}: {{error}}")
"""


def fail(body: str) -> list[str]:
    """What is said at the first and at the second `sync` after `body`."""
    programs = Path(__file__).parent / "programs.ptx"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(body=body), str(programs)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("address", "meaning"),
    [
        ("16", "a thread read or wrote an address outside every allocation (CUDA_ERROR_ILLEGAL_ADDRESS)"),
        ("array.address + 2", "a thread used an address that is not a multiple of the size of its access (CUDA_ERROR_MISALIGNED_ADDRESS)"),
    ],
)
def test_bad_accesses(gpu: Device, address: str, meaning: str) -> None:
    first, second = fail(f"kernels['poke'][1, 1]({address})")
    assert first == (
        f"BadAccess: kernel poke failed on cuda:0: {meaning}; run it on ml.target('emulator') to see where, "
        "and start a new process to use this GPU again"
    )
    assert second == first


def test_all_kernels_that_may_be_guilty_are_named(gpu: Device) -> None:
    body = "kernels['bounded'][1, 1]()\ngpu.sync()\nkernels['spin'][1, 1](1)\nkernels['poke'][1, 1](16)"
    assert fail(body)[0].startswith("BadAccess: one of the kernels spin, poke failed on cuda:0: ")


def test_a_fault_in_a_graph_names_its_kernels(gpu: Device) -> None:
    body = "gpu.graph([kernels['spin'][1, 1].bind(1), kernels['poke'][1, 1].bind(16)]).replay()"
    assert fail(body)[0].startswith("BadAccess: one of the kernels spin, poke failed on cuda:0: ")


def test_a_trap(gpu: Device) -> None:
    first, _ = fail("kernels['stop'][1, 1]()")
    assert first.startswith("KernelTrap: kernel stop failed on cuda:0: a thread ")


def test_a_trap_while_it_is_traced_says_that_the_records_are_lost(gpu: Device, tmp_path: Path) -> None:
    text = '__global__ void half(int* p) {\n    p[threadIdx.x] = 1;\n    if (p[0]) asm volatile("trap;");\n}\n'
    (tmp_path / "half.cu").write_text(text, encoding="utf-8")
    run = "import sys; from memlane.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["trace", "half.cu", "--target", "cuda:0", "--grid", "1", "--block", "32", "--arg", "i4[32]"]
    done = subprocess.run([sys.executable, "-c", run, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("memlane: kernel half(int*) failed on cuda:0: a thread "), done.stderr
    assert "The records until then are lost with the GPU memory; the emulator would keep them\n" in done.stderr
    assert not (tmp_path / "half.parquet").exists()

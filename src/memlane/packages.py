"""The optional parts of memlane: what each is for, the packages it needs, and the command that installs them.

install_command("triton")        # pip install 'memlane[triton]'
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CORE = ("jinja2", "llvmlite", "numpy", "pyarrow", "rich", "typer")
"""The distributions that memlane always needs."""


@dataclass(frozen=True)
class Part:
    """One optional part of memlane: an extra of its distribution."""

    extra: str
    distributions: tuple[str, ...]
    purpose: str
    """What works with it, as the end of a sentence."""
    linux_only: bool = False


CUDA = Part(
    "cuda",
    (
        "cuda-bindings",
        "cuda-core",
        "nvidia-cuda-cccl",
        "nvidia-cuda-crt",
        "nvidia-cuda-nvdisasm",
        "nvidia-cuda-nvrtc",
        "nvidia-cuda-runtime",
        "nvidia-nvjitlink",
    ),
    "CUDA C++ (.cu files) and GPUs",
)
PARTS = (
    CUDA,
    Part("numba", ("numba-cuda",), "kernels of Numba"),
    Part("triton", ("triton",), "kernels of Triton", linux_only=True),
    Part("lab", ("matplotlib", "scipy"), "figures of `memlane lab`, and matrices from files"),
    Part("perfetto", ("perfetto",), "`memlane export --to perfetto`"),
    Part("otf2", ("otf2",), "`memlane export --to otf2`", linux_only=True),
    Part("mpi", ("mpi4py",), "stencils on the ranks of an MPI program"),
    Part("nccl", ("nccl4py", "nvidia-nccl-cu13"), "stencils whose ranks exchange GPU memory by NCCL", linux_only=True),
    Part("hdf5", ("h5py",), "`run.series` of a stencil in HDF5"),
    Part("zarr", ("zarr",), "`run.series` of a stencil in Zarr"),
)
"""All extras for users, in the order in which `memlane doctor` lists them."""


def install_command(extra: str = "") -> str:
    """Return the command that installs an extra into the environment that runs this process.

    It works for a memlane that is on no package index: pip takes the extra's requirements from the installed distribution.
    """
    return pip_install(f"memlane[{extra}]" if extra else "memlane")


def pip_install(*words: str) -> str:
    """Return the command that installs packages into the environment that runs this process: with `pip` where the shell finds the `pip` of
    this environment, else with its interpreter."""
    arguments = " ".join(f"'{word}'" if "[" in word else shlex.quote(word) for word in words)
    found = shutil.which("pip")
    if found is not None and Path(found).resolve().parent == programs().resolve():
        return f"pip install {arguments}"
    if importlib.util.find_spec("pip") is None and shutil.which("uv") is not None:
        return f"uv pip install --python {_interpreter()} {arguments}"
    return f"{_interpreter()} -m pip install {arguments}"


def programs() -> Path:
    """Return the folder with the programs of this environment."""
    return Path(sys.executable).parent


def _interpreter() -> str:
    """The interpreter as a user of this folder would type it."""
    path = Path(sys.executable)
    with suppress(OSError, ValueError):  # there is no working directory, or the environment is elsewhere
        path = path.relative_to(Path.cwd())
    return shlex.quote(str(path))

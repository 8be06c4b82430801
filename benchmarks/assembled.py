"""Count the memory instructions of a kernel, in PTX and as assembled."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from memlane.compile import assemble
from memlane.instrument import site_table
from memlane.ptx import Module

GROUPS = ("global load", "global store", "global atomic", "shared")
SPACES = ("global", "generic", "shared", "shared::cluster")
"""Address spaces whose sites belong to a group."""

_SECTION = re.compile(r"^\.text\.(\S+):$")
_OPCODE = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
_SASS_GROUPS = {
    "LDG": "global load",
    "LD": "global load",
    "LDGSTS": "global load",
    "STG": "global store",
    "ST": "global store",
    "RED": "global atomic",
    "REDG": "global atomic",
    "ATOM": "global atomic",
    "ATOMG": "global atomic",
    "LDS": "shared",
    "STS": "shared",
    "ATOMS": "shared",
    **dict.fromkeys(("BGMMA", "HGMMA", "IGMMA", "QGMMA"), "shared"),
}
_PTX_KINDS = {"load": "load", "store": "store", "atomic": "atomic", "reduction": "atomic", "copy": "load"}

Instructions = dict[str, Counter[str]]
"""Number of instructions of each opcode, by group."""


def group_of(space: str, kind: str) -> str:
    """Return the group of a site. Generic accesses count as global memory, which they access in the examples, and copies by their load."""
    return "shared" if space.startswith("shared") else f"global {_PTX_KINDS[kind]}"


def in_ptx(module: Module, kernel: str) -> Instructions:
    """Return the instructions of the kernel with this PTX name."""
    found: Instructions = {group: Counter() for group in GROUPS}
    for site in site_table(module).of_kernel[kernel].values():
        if site.space in SPACES and site.is_counted:
            found[group_of(site.space, site.kind)][site.op] += 1
    return found


def in_sass(text: str) -> dict[str, Instructions]:
    """Return the instructions of every kernel in the output of nvdisasm."""
    kernels: dict[str, Instructions] = {}
    current: Instructions = {group: Counter() for group in GROUPS}
    for line in text.splitlines():
        if section := _SECTION.match(line):
            current = kernels.setdefault(section[1], {group: Counter() for group in GROUPS})
        elif opcode := _OPCODE.match(line):
            group = _SASS_GROUPS.get(opcode[1].partition(".")[0])
            if group:
                current[group][opcode[1]] += 1
    return kernels


def disassemble(module: Module, arch: str) -> str:
    """Return the listing of the assembled module. FileNotFoundError without a disassembler."""
    program = shutil.which("nvdisasm") or next(map(str, Path(sys.prefix).glob("lib/python*/site-packages/nvidia/cu*/bin/nvdisasm")), None)
    if program is None:
        raise FileNotFoundError("there is no nvdisasm; pip install nvidia-cuda-nvdisasm")
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "module.cubin"
        cubin.write_bytes(assemble(module, arch=arch).data)
        return subprocess.run([program, "-c", str(cubin)], capture_output=True, text=True, check=True).stdout


def describe(counts: Counter[str]) -> str:
    """Return the counts as text, such as `16 LDS + 4 LDS.128`."""
    return " + ".join(f"{number} {opcode}" for opcode, number in sorted(counts.items())) or "none"

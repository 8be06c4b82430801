"""How many blocks a launch puts together, and what is refused."""

from __future__ import annotations

import pytest

from memlane.chip import load
from memlane.errors import BadLaunch
from memlane.launch import KernelCall, cluster_of
from memlane.ptx import parse
from tests.launch.fake_target import FakeTarget

TEXT = """.version 9.0
.target sm_90
.address_size 64
.visible .entry free() { ret; }
.visible .entry fixed() .explicitcluster .reqnctapercluster 2, 2 { ret; }
.visible .entry told() .explicitcluster { ret; }
.visible .entry small() .maxclusterrank 4 { ret; }
"""


def call(name: str, grid: object, cluster: object = None, chip: str = "h200", nonportable: bool = False) -> KernelCall:
    target = FakeTarget()
    target.chip = load(chip)
    kernel = target.load(parse(TEXT, "c.cu"))[name]
    kernel = kernel.allow_nonportable_clusters() if nonportable else kernel
    return kernel[grid, 32, None, 0, cluster]


@pytest.mark.parametrize(
    ("name", "grid", "cluster", "found"),
    [
        ("free", 8, None, None),
        ("free", 8, 2, (2, 1, 1)),
        ("free", (8, 3), (2, 3), (2, 3, 1)),
        ("fixed", (4, 2), None, (2, 2, 1)),
        ("fixed", (4, 2), (2, 2), (2, 2, 1)),
        ("told", 4, 4, (4, 1, 1)),
        ("small", (4, 2), (2, 2), (2, 2, 1)),
    ],
)
def test_a_launch_or_its_kernel_says_the_cluster(name: str, grid: object, cluster: object, found: object) -> None:
    launch = call(name, grid, cluster).bind()
    assert cluster_of(launch.kernel, launch.cluster) == found


def test_large_clusters_are_allowed_by_who_asks_for_them() -> None:
    assert call("free", (4, 4), (4, 4), nonportable=True).bind().cluster == (4, 4, 1)


@pytest.mark.parametrize(
    ("name", "grid", "cluster", "chip", "words"),
    [
        (
            "free",
            (8, 5),
            (2, 2),
            "h200",
            "is 5, which is not a multiple of the 2 blocks of its clusters (2x2x1): launch 6 blocks in y, and let those beyond",
        ),
        ("fixed", (3, 2), None, "h200", "grid.x of fixed is 3, which is not a multiple of the 2 blocks of its clusters (2x2x1)"),
        (
            "fixed",
            8,
            4,
            "h200",
            "fixed was compiled for clusters of 2x2x1 blocks, got 4x1x1: leave the cluster out of the launch, or compile",
        ),
        (
            "told",
            8,
            None,
            "h200",
            "told must be launched in clusters (.explicitcluster): write kernel[grid, block, stream, shared_bytes, cluster]",
        ),
        ("small", 8, 8, "h200", "small was compiled for clusters of at most 4 blocks (.maxclusterrank), got 8x1x1: launch smaller ones"),
        (
            "free",
            16,
            16,
            "h200",
            "has 16 blocks, but only some GPUs support more than 8: allow it with kernel.allow_nonportable_clusters()[...]",
        ),
        ("free", 32, 32, "h200", "a cluster of 32x1x1 has 32 blocks; no GPU takes more than 16: launch smaller clusters"),
        (
            "free",
            2,
            2,
            "a100",
            "free needs clusters of 2x1x1 blocks, but a100 has compute capability 8.0, and clusters need 9.0: launch it on",
        ),
        ("free", 2, (0, 1), "h200", "the cluster must be positive in each dimension, got (0, 1)"),
        ("free", 2, "two", "h200", "the cluster must be an int or a tuple of up to 3 ints, got 'two'"),
    ],
)
def test_what_cannot_be_is_said_with_a_remedy(name: str, grid: object, cluster: object, chip: str, words: str) -> None:
    with pytest.raises(BadLaunch) as raised:
        call(name, grid, cluster, chip).bind()
    assert words in str(raised.value)


def test_a_grid_in_clusters_is_refused() -> None:
    text = TEXT + ".visible .entry counted() .blocksareclusters .reqntid 32, 1, 1 .reqnctapercluster 2, 1, 1 { ret; }\n"
    with pytest.raises(BadLaunch, match=r"counts its grid in clusters .* give the grid in blocks"):
        FakeTarget().load(parse(text, "c.cu"))["counted"][4, 32].bind()

"""Launch kernels of Rodinia as the host code next to them does, with sizes small enough for the emulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from explain_cases import Arguments, floats, whole
from public_kernel import Public
from public_sources import RODINIA

from memlane.launch import Target

Extent = tuple[int, ...]
_ROWS, _COLUMNS = 512, 128
_PIXELS = _ROWS * _COLUMNS
_POINT = np.dtype(
    {"names": ["weight", "coord", "assign", "cost"], "formats": ["f4", "u8", "i8", "f4"], "offsets": [0, 8, 16, 24], "itemsize": 32}
)


def _case(file: str, kernel: str, grid: Extent | int, block: Extent | int, arguments: Arguments, *, instantiate: bool = False) -> Public:
    grids, blocks = (one if isinstance(one, tuple) else (one,) for one in (grid, block))
    return Public(
        RODINIA, f"cuda/{file}", kernel, grids, blocks, arguments, include=(f"cuda/{file}".rpartition("/")[0],), instantiate=instantiate
    )


def _wall(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return 20, whole(target, 10, 20, 21600), whole(target, 10, 21600), target.zeros(21600, "i4"), 21600, 20, 0, 20


def _sequences(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return whole(target, 10, 513, 513), target.zeros((513, 513), "i4"), 513, 10, 32, 32


def _matrix(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return target.array((np.random.default_rng(3).random((256, 256)) + 256 * np.eye(256)).astype("f4")), 256, 0


def _chip(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return *(floats(target, 8, 64, 256) for _ in range(2)), target.zeros(8 * 64 * 256), 0.1, 256, 64, 8, *[0.1] * 7


def _heat(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return 2, floats(target, 256, 256), floats(target, 256, 256), target.zeros((256, 256)), 256, 256, 2, 2, 0.5, 1.0, 1.0, 1.0, 0.001, 0.0


def _clustered(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    points = np.zeros(16384, _POINT)
    points["weight"], points["assign"], points["cost"] = 1, random.integers(0, 16384, 16384), random.random(16384)
    table = target.array(random.integers(0, 10, 16384, np.int32))
    arrays = floats(target, 32, 16384), target.zeros(16384 * 11), table, target.zeros(16384, "?")
    return 16384, 32, 5, target.array(points.view(np.uint8)), 10, 11, *arrays


def _neighbours(target: Target) -> tuple[object, ...]:
    rows, columns = np.arange(_ROWS, dtype=np.int32), np.arange(_COLUMNS, dtype=np.int32)
    ends = (
        np.clip(rows - 1, 0, None),
        np.clip(rows + 1, None, _ROWS - 1),
        np.clip(columns + 1, None, _COLUMNS - 1),
        np.clip(columns - 1, 0, None),
    )
    return tuple(target.array(one.astype(np.int32)) for one in ends)


def _images(count: int) -> Arguments:
    return lambda target, _: tuple(floats(target, _PIXELS) for _ in range(count))


def _srad(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    return 0.5, _ROWS, _COLUMNS, _PIXELS, *_neighbours(target), *_images(4)(target, random), 0.05, *_images(2)(target, random)


def _srad2(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    return 0.5, _ROWS, _COLUMNS, _PIXELS, *_neighbours(target), *_images(6)(target, random)


def _tiles(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    padded = target.array(random.random(258 * 256, np.float32))  # The kernel reads a row before the image and one behind it.
    image = replace(padded, address=padded.address + 4 * 256, shape=(256, 256), owner=padded)
    return *(target.zeros(65536) for _ in range(4)), image, target.zeros(65536), 256, 256, 0.05


def _graph(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    degrees = random.integers(1, 12, 32768)
    nodes = np.stack([np.cumsum(degrees) - degrees, degrees], axis=1).astype(np.int32)
    edges = target.array(random.integers(0, 32768, int(degrees.sum()), np.int32))
    flags = [target.array(random.random(32768) < share) for share in (0.5, 0.0, 0.5)]
    return target.array(nodes), edges, *flags, target.zeros(32768, "i4"), 32768


def _frontier(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    flags = [target.array(random.random(131072) < share) for share in (0.0, 0.5, 0.5)]
    return *flags, target.zeros(1, "?"), 131072


def _forward(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return floats(target, 4097), target.zeros(17), floats(target, 4097 * 17), target.zeros(256 * 16), 4096, 16


def _adjust(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return floats(target, 17), 16, floats(target, 4097), 4096, floats(target, 4097 * 17), floats(target, 4097 * 17)


_CELLS = 192 * 128


def _step_factor(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return _CELLS, floats(target, 5 * _CELLS), floats(target, _CELLS), target.zeros(_CELLS)


def _time_step(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return 1, _CELLS, *(floats(target, size * _CELLS) for size in (5, 5, 1, 5))


def _bytes(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    size = 264 * 256 * 8
    return target.array(random.integers(0, 256, size, np.uint8)), size, target.zeros(256, "i4")


def _particles(target: Target) -> tuple[object, ...]:
    return (
        *(target.array(np.random.default_rng(4).random(1024)) for _ in range(2)),
        target.array(np.arange(1, 1025) / 1024),
        target.array(np.arange(1024) / 1024),
    )


def _found(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return *_particles(target), *(target.zeros(1024, "f8") for _ in range(3)), 1024


def _weights(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    ones = target.array(np.ones(1024))
    return ones, 1024, target.array(np.full(2, 1024.0)), target.zeros(1024, "f8"), target.zeros(1024, "f8"), whole(target, 1000, 1024)


def _colours(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    return *(target.zeros(32768, "i4") for _ in range(3)), target.array(random.integers(0, 256, 3 * 32768, np.uint8)), 32768


_SRAD, _FILTER = "srad/srad_v1/main.cu", "particlefilter/ex_particle_CUDA_float_seq.cu"
CASES = (
    _case("pathfinder/pathfinder.cu", "dynproc_kernel", 100, 256, _wall),
    _case("nw/needle_kernel.cu", "needle_cuda_shared_1", 32, 16, _sequences),
    _case("lud/cuda/lud_kernel.cu", "lud_diagonal", 1, 16, _matrix),
    _case("lud/cuda/lud_kernel.cu", "lud_perimeter", 15, 32, _matrix),
    _case("lud/cuda/lud_kernel.cu", "lud_internal", (15, 15), (16, 16), _matrix),
    _case("hotspot3D/opt1.cu", "hotspotOpt1", (4, 16), (64, 4), _chip),
    _case("hotspot/hotspot.cu", "calculate_temp", (22, 22), (16, 16), _heat),
    _case("streamcluster/streamcluster_cuda.cu", "kernel_compute_cost", 32, 512, _clustered),
    _case(_SRAD, "reduce", 128, 512, lambda target, random: (_PIXELS, _PIXELS, 1, *_images(2)(target, random))),
    _case(_SRAD, "srad", 128, 512, _srad),
    _case(_SRAD, "srad2", 128, 512, _srad2),
    _case(_SRAD, "prepare", 128, 512, lambda target, random: (_PIXELS, *_images(3)(target, random))),
    _case("srad/srad_v2/srad_kernel.cu", "srad_cuda_1", (16, 16), (16, 16), _tiles),
    _case("bfs/bfs.cu", "Kernel", 64, 512, _graph),
    _case("bfs/bfs.cu", "Kernel2", 256, 512, _frontier),
    _case("backprop/backprop_cuda_kernel.cu", "bpnn_layerforward_CUDA", (1, 256), (16, 16), _forward),
    _case("backprop/backprop_cuda_kernel.cu", "bpnn_adjust_weights_cuda", (1, 256), (16, 16), _adjust),
    _case("cfd/euler3d.cu", "cuda_compute_step_factor", 128, 192, _step_factor),
    _case("cfd/euler3d.cu", "cuda_time_step", 128, 192, _time_step),
    _case("huffman/hist.cu", "histo_kernel", 264, 256, _bytes),
    _case(_FILTER, "find_index_kernel", 2, 512, _found),
    _case(_FILTER, "normalize_weights_kernel", 2, 512, _weights),
    _case("dwt2d/components.cu", "c_CopySrcToComponents<int>", 128, 256, _colours, instantiate=True),
)

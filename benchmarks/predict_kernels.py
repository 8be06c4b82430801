"""Prepare the kernels by which modelled times are judged: each variant of each family, ready to be launched on a target.

    variant = VARIANTS["transposes: padded 2048"]
    launch = variant.launch(target)

Sizes are such that a launch takes some microseconds to some hundreds on an H200, more bytes than L2 holds where DRAM is meant, and few
enough instructions for the emulator. A launch may be repeated: it does the same work again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from explain_cases import PLANTED
from explain_cases import text as planted_text
from predict_families import SET_ASIDE, TUNED
from predict_python import FOLDER as PTX_FOLDER

from memlane.compile import cuda
from memlane.lab.reduction.ladder import STEPS, passes
from memlane.launch import DeviceArray, KernelCall, Launch, Target
from memlane.ptx import Module, parse

HERE = Path(__file__).parent
OWN, EXAMPLES = HERE / "kernels" / "predict.cu", HERE.parent / "examples"
MI = 1 << 20

Shape = int | tuple[int, ...]


@dataclass(frozen=True)
class Variant:
    """One kernel with one shape and one set of arguments."""

    family: str
    name: str
    launch: Callable[[Target], Launch]

    @property
    def title(self) -> str:
        return f"{self.family}: {self.name}"


@cache
def compiled(path: Path) -> Module:
    """Return the module in a file of CUDA C++ or PTX."""
    return parse(path.read_text(), path.name) if path.suffix == ".ptx" else cuda(path)


def call(target: Target, path: Path, kernel: str, grid: Shape, block: Shape, shared: int = 0) -> KernelCall:
    return target.load(compiled(path))[kernel][grid, block, None, shared]


def floats(target: Target, *shape: int) -> DeviceArray:
    return target.zeros(shape, np.float32)


def blocks(n: int, block: int = 256) -> int:
    return -(-n // block)


# -- copies, stores, gathers -----------------------------------------------------------------------------------------------------


def copies_by_width() -> Iterator[Variant]:
    for kind, element, n in (("char", "i1", 16 * MI), ("short", "i2", 16 * MI), ("float", "f4", 16 * MI), ("float", "f4", 2 * MI)):
        yield _copy(kind, element, 1, n)
    for kind, lanes, n in (("float2", 2, 8 * MI), ("float4", 4, 4 * MI), ("float4", 4, MI // 2)):
        yield _copy(kind, "f4", lanes, n)


def _copy(kind: str, element: str, lanes: int, n: int) -> Variant:
    def launch(target: Target) -> Launch:
        out, source = (target.zeros(n * lanes, element) for _ in range(2))
        return call(target, OWN, f"copy<{kind}>", blocks(n), 256).bind(out, source, n)

    return Variant("copies by vector width", f"{n} {kind}", launch)


def copies_shifted() -> Iterator[Variant]:
    def of(name: str, kernel: str, n: int, *more: int, per_thread: int = 1) -> Variant:
        def launch(target: Target) -> Launch:
            out, source = floats(target, n), floats(target, n)
            return call(target, EXAMPLES / "copies.cu", kernel, blocks(n // per_thread), 256).bind(out, source, n, *more)

        return Variant("copies, shifted and strided", name, launch)

    yield of("direct", "direct", 16 * MI)
    yield of("vectors", "vectors", 16 * MI, per_thread=4)
    yield of("shifted by 1", "shifted", 16 * MI, 1)
    yield of("shifted by 16", "shifted", 16 * MI, 16)
    for stride in (2, 8, 32):
        yield of(f"strided by {stride}", "strided", 8 * MI, stride)
    yield of("strided by 8, small", "strided", MI, 8)


def stores() -> Iterator[Variant]:
    def filled(kind: str, n: int, lanes: int) -> Variant:
        def launch(target: Target) -> Launch:
            return call(target, OWN, f"fill<{kind}>", blocks(n), 256).bind(floats(target, n * lanes), n)

        return Variant("stores", f"{n} {kind}", launch)

    def strided(n: int, stride: int) -> Variant:
        def launch(target: Target) -> Launch:
            return call(target, OWN, "fill_strided", blocks(n), 256).bind(floats(target, n * stride), n, stride)

        return Variant("stores", f"{n}, {stride} words apart", launch)

    yield filled("float", 32 * MI, 1)
    yield filled("float", 4 * MI, 1)
    yield filled("float4", 8 * MI, 4)
    yield from (strided(n, stride) for n, stride in ((8 * MI, 2), (4 * MI, 8), (MI, 32), (MI // 2, 8)))


def strided_gathers() -> Iterator[Variant]:
    def of(n: int, stride: int) -> Variant:
        def launch(target: Target) -> Launch:
            arguments = floats(target, n), floats(target, n * stride), n, stride
            return call(target, OWN, "gather_strided", blocks(n), 256).bind(*arguments)

        return Variant("strided gathers", f"{n}, {stride} words apart", launch)

    yield from (
        of(n, stride) for n, stride in ((8 * MI, 1), (8 * MI, 2), (4 * MI, 4), (4 * MI, 8), (2 * MI, 16), (MI, 32), (MI, 4), (MI // 4, 32))
    )


def random_gathers() -> Iterator[Variant]:
    def of(n: int, table: int) -> Variant:
        def launch(target: Target) -> Launch:
            arguments = floats(target, n), floats(target, table), n, np.uint32(table - 1)
            return call(target, OWN, "gather_random", blocks(n), 256).bind(*arguments)

        return Variant("random gathers", f"{n} from {table} words", launch)

    yield from (of(4 * MI, 1 << bits) for bits in (10, 14, 18, 20, 22, 25))
    yield of(MI // 2, 1 << 20)


# -- the reduction ladder, shared memory, barriers, atomics --------------------------------------------------------------------------


def reductions() -> Iterator[Variant]:
    def of(number: int, n: int, block: int = 256) -> Variant:
        step = next(step for step in STEPS if step.number == number)

        def launch(target: Target) -> Launch:
            return passes(step, target.zeros(n, np.int32), block).launches[0]

        return Variant("reduction ladder", f"step {number}, {n}", launch)

    yield from (of(number, 4 * MI) for number in (1, 2, 3, 4, 6, 7, 8, 9, 10))
    yield from (of(number, 32 * MI) for number in (7, 9, 10))


def bank_conflicts() -> Iterator[Variant]:
    def of(kind: str, stride: int, turns: int) -> Variant:
        def launch(target: Target) -> Launch:
            return call(target, OWN, f"banks<{kind}>", 264, 512).bind(floats(target, 512), turns, stride)

        return Variant("bank conflicts", f"{kind}, {stride} apart", launch)

    yield from (of("float", stride, 256) for stride in (0, 1, 2, 4, 8, 32, 33))
    yield from (of("float4", stride, 128) for stride in (0, 1, 2, 8))


def barriers() -> Iterator[Variant]:
    def of(grid: int, block: int) -> Variant:
        def launch(target: Target) -> Launch:
            return call(target, OWN, "barriers", grid, block).bind(floats(target, 1024), 200)

        return Variant("barriers", f"{grid} blocks of {block}", launch)

    yield from (of(grid, block) for grid, block in ((132, 64), (132, 256), (132, 1024), (264, 1024), (1056, 256), (2112, 64)))


def _bytes(target: Target, values: int, n: int) -> DeviceArray:
    return target.array(np.random.default_rng(3).integers(0, values, n, np.uint8))


def shared_histograms() -> Iterator[Variant]:
    def of(values: int, n: int, grid: int = 528) -> Variant:
        def launch(target: Target) -> Launch:
            arguments = target.zeros(256, np.uint32), _bytes(target, values, n), n
            return call(target, EXAMPLES / "histogram.cu", "shared_atomics", grid, 256).bind(*arguments)

        return Variant("histograms in shared memory", f"{values} values, {n} bytes, {grid} blocks", launch)

    yield from (of(values, 4 * MI) for values in (1, 4, 16, 256))
    yield of(256, 16 * MI, 1056)


def atomics() -> Iterator[Variant]:
    def scattered(n: int, table: int) -> Variant:
        def launch(target: Target) -> Launch:
            return call(target, OWN, "scatter_add", blocks(n), 256).bind(target.zeros(table, np.uint32), n, np.uint32(table - 1))

        return Variant("atomics by contention", f"{n} to {table} words", launch)

    def histogram(values: int) -> Variant:
        def launch(target: Target) -> Launch:
            arguments = target.zeros(256, np.uint32), _bytes(target, values, MI // 2), MI // 2
            return call(target, EXAMPLES / "histogram.cu", "global_atomics", 264, 256).bind(*arguments)

        return Variant("atomics by contention", f"histogram of {values} values", launch)

    yield from (scattered(MI // 2, table) for table in (1, 32, 1024, 1 << 16, MI))
    yield scattered(2 * MI, 4 * MI)
    yield from (histogram(values) for values in (4, 256))


# -- transposes, products, stencils, textures ----------------------------------------------------------------------------------------


def transposes() -> Iterator[Variant]:
    def of(kernel: str, n: int) -> Variant:
        def launch(target: Target) -> Launch:
            out, source = floats(target, n, n), floats(target, n, n)
            return call(target, EXAMPLES / "transpose.cu", kernel, (n // 32, n // 32), (32, 32)).bind(out, source, n)

        return Variant("transposes", f"{kernel} {n}", launch)

    yield from (of(kernel, n) for n in (1024, 2048, 4096) for kernel in ("naive", "tiled", "padded"))


def products() -> Iterator[Variant]:
    def of(name: str, path: Path, kernel: str, n: int, grid: Shape, block: Shape) -> Variant:
        def launch(target: Target) -> Launch:
            return call(target, path, kernel, grid, block).bind(*(floats(target, n, n) for _ in range(3)), n)

        return Variant("matrix products by tile", f"{name}, {n}", launch)

    n = 512
    yield of("plain, 32 x 8", OWN, "product_plain", n, (n // 32, n // 8), (32, 8))
    yield of("plain, 16 x 16", OWN, "product_plain", n, (n // 16, n // 16), (16, 16))
    yield of("tile of 16, checked", EXAMPLES / "matmul.cu", "matmul", n, (n // 16, n // 16), (16, 16))
    for tile, rows in ((8, 1), (16, 1), (32, 1), (16, 4), (32, 4)):
        name = f"tile of {tile}" + (f", {rows} rows a thread" if rows > 1 else "")
        yield of(name, OWN, f"product_tiled<{tile}, {rows}>", n, (n // tile, n // tile // rows), (tile, tile))
    yield of("tile of 16", OWN, "product_tiled<16, 1>", 256, (16, 16), (16, 16))


def stencils_by_shape() -> Iterator[Variant]:
    def of(block: tuple[int, int, int], nz: int) -> Variant:
        def launch(target: Target) -> Launch:
            grid = 256 // block[0], 256 // block[1], nz // block[2]
            arguments = floats(target, nz, 256, 256), floats(target, nz, 256, 256), 256, 256, nz
            return call(target, EXAMPLES / "stencil.cu", "seven_point", grid, block).bind(*arguments)

        return Variant("stencils by block shape", f"{block[0]} x {block[1]} x {block[2]}, {nz} planes", launch)

    shapes = ((32, 4, 2), (64, 4, 1), (256, 1, 1), (16, 16, 1), (8, 8, 4), (4, 8, 8), (32, 1, 8), (32, 1, 1))
    yield from (of(shape, 64) for shape in shapes)
    yield of((32, 4, 2), 256)


def stencil_variants() -> Iterator[Variant]:
    def marching(block: tuple[int, int], nz: int) -> Variant:
        def launch(target: Target) -> Launch:
            arguments = floats(target, nz, 256, 256), floats(target, nz, 256, 256), 256, 256, nz
            return call(target, EXAMPLES / "stencil.cu", "marching", (256 // block[0], 256 // block[1]), block).bind(*arguments)

        return Variant("stencil variants", f"marching {block[0]} x {block[1]}, {nz} planes", launch)

    def plane(kernel: str, n: int) -> Variant:
        def launch(target: Target) -> Launch:
            return call(target, OWN, kernel, (n // 32, n // 8), (32, 8)).bind(floats(target, n, n), floats(target, n, n), n)

        return Variant("stencil variants", f"{kernel} {n}", launch)

    yield from (marching(block, nz) for block, nz in (((32, 8), 64), ((32, 2), 64), ((128, 2), 64), ((32, 8), 256)))
    yield from (plane(kernel, n) for n in (2048, 4096) for kernel in ("five_point", "five_point_tiled"))


def textures() -> Iterator[Variant]:
    def of(block: tuple[int, int], n: int, degrees: int) -> Variant:
        def launch(target: Target) -> Launch:
            width, height, angle = n, n // 2, math.radians(degrees)
            image = target.texture(np.zeros((height, width), np.float32), filter="linear", address="border")
            grid = -(-width // block[0]), -(-height // block[1])
            turn = call(target, EXAMPLES / "rotation.cu", "turn", grid, block)
            return turn.bind(floats(target, height, width), image, width, height, np.float32(math.cos(angle)), np.float32(math.sin(angle)))

        return Variant("textures by block shape", f"{block[0]} x {block[1]}, {n}, {degrees} degrees", launch)

    yield from (of(block, 2048, 20) for block in ((32, 8), (16, 16), (8, 32), (4, 64), (256, 1), (1, 256)))
    yield from (of(block, 4096, 90) for block in ((32, 8), (8, 32)))


# -- what keeps a multiprocessor busy ------------------------------------------------------------------------------------------------


def occupancy() -> Iterator[Variant]:
    def of(resident: int, block: int) -> Variant:
        def launch(target: Target) -> Launch:
            chip = target.chip
            shared = min(chip.max_shared_bytes, chip.shared_bytes_per_sm // resident) - 2048
            n = 16 * MI
            copy = call(target, OWN, "resident_copy", chip.sm_count * resident, block, shared)
            return copy.bind(floats(target, n), floats(target, n), n)

        return Variant("occupancy", f"{resident} blocks of {block}", launch)

    yield from (of(resident, block) for resident, block in ((1, 128), (1, 256), (2, 256), (4, 256), (8, 256), (1, 1024), (2, 1024)))


OPERATIONS = {"Fma": "f4", "Fp64": "f8", "Sine": "f4", "Divide": "f4", "Root": "f4", "Multiply": "u4", "Shift": "u4", "Remainder": "u4"}


def arithmetic() -> Iterator[Variant]:
    def of(operation: str, chains: int, grid: int, block: int, turns: int) -> Variant:
        def launch(target: Target) -> Launch:
            out = target.zeros(1024, OPERATIONS[operation])
            return call(target, OWN, f"arithmetic<{operation}, {chains}>", grid, block).bind(out, turns)

        return Variant("arithmetic", f"{operation}, {chains} chains, {grid} blocks of {block}", launch)

    yield of("Fma", 1, 132, 128, 1000)
    yield of("Fma", 4, 132, 128, 500)
    yield of("Fma", 1, 264, 1024, 200)
    yield of("Fma", 4, 264, 512, 100)
    for operation, turns in (
        ("Fp64", 100),
        ("Sine", 100),
        ("Divide", 50),
        ("Root", 50),
        ("Multiply", 200),
        ("Shift", 200),
        ("Remainder", 50),
    ):
        yield of(operation, 1, 264, 512, turns)
    yield of("Fp64", 1, 132, 128, 500)
    yield of("Sine", 1, 132, 128, 500)


def tensor_products() -> Iterator[Variant]:
    def of(chains: int, warps: int, turns: int) -> Variant:
        def launch(target: Target) -> Launch:
            return call(target, OWN, f"products<{chains}>", 132, 32 * warps).bind(floats(target, 1024), turns)

        return Variant("tensor products", f"{chains} chains, {warps} warps", launch)

    yield from (of(chains, warps, turns) for chains, warps, turns in ((1, 4, 300), (4, 4, 100), (1, 16, 100), (4, 8, 100)))


def waves() -> Iterator[Variant]:
    def of(grid: int, block: int) -> Variant:
        def launch(target: Target) -> Launch:
            return call(target, OWN, "arithmetic<Fma, 1>", grid, block).bind(floats(target, 1024), 100)

        return Variant("waves of blocks", f"{grid} blocks of {block}", launch)

    yield from (of(grid, 1024) for grid in (66, 132, 264, 265, 396, 528, 530))
    yield from (of(grid, 128) for grid in (2112, 2113, 3200))


def launches() -> Iterator[Variant]:
    def of(grid: int, block: int) -> Variant:
        return Variant("launches", f"{grid} blocks of {block}", lambda target: call(target, OWN, "nothing", grid, block).bind())

    yield from (of(grid, block) for grid, block in ((1, 32), (132, 1024), (4096, 1024), (16384, 32), (65536, 128), (262144, 256)))


# -- whole kernels of others ---------------------------------------------------------------------------------------------------------


def sparse_products() -> Iterator[Variant]:
    def of(kernel: str, rows: int, low: int, high: int) -> Variant:
        def launch(target: Target) -> Launch:
            random = np.random.default_rng(7)
            ends = np.concatenate([[0], np.cumsum(random.integers(low, high, rows))]).astype(np.int32)
            column = target.array(random.integers(0, rows, ends[-1]).astype(np.int32))
            matrix = target.array(ends), column, floats(target, int(ends[-1])), floats(target, rows)
            threads = rows * (1 if kernel == "csr_scalar" else 32)
            return call(target, EXAMPLES / "spmv.cu", kernel, blocks(threads, 128), 128).bind(floats(target, rows), *matrix, rows)

        return Variant("sparse matrix times vector", f"{kernel}, {rows} rows of {low} to {high - 1}", launch)

    for kernel in ("csr_scalar", "csr_warp"):
        yield from (of(kernel, rows, low, high) for rows, low, high in ((65536, 0, 64), (131072, 4, 9), (16384, 100, 200)))


PUBLIC = ("tile_column", "chunk_per_thread", "search", "own_turns", "window_sum", "all_pairs", "naive_product", "one_counter")


def public_kernels() -> Iterator[Variant]:
    def planted(name: str) -> Variant:
        case = next(case for case in PLANTED if case.kernel == name)

        def launch(target: Target) -> Launch:
            kernel = target.load(_planted(case.file))[case.kernel]
            arguments = case.arguments(target, np.random.default_rng(7))
            return kernel[case.grid, case.block, None, case.shared_bytes].bind(*arguments)

        return Variant("public kernels", name, launch)

    def bitonic(target: Target) -> Launch:
        return call(target, HERE / "kernels" / "bitonic.cu", "bitonic<float, 512>", 4096, 256).bind(floats(target, 4096 * 512))

    yield from map(planted, PUBLIC)
    yield Variant("public kernels", "bitonic", bitonic)


@cache
def _planted(file: str) -> Module:
    return cuda(planted_text(file), name=f"{file}.cu")


def _spread(array: DeviceArray) -> tuple[object, ...]:
    """Return the parameters that Numba makes of an array."""
    strides = [array.dtype.itemsize * math.prod(array.shape[axis + 1 :]) for axis in range(len(array.shape))]
    return (*(np.uint64(0),) * 2, *map(np.uint64, (array.size, array.dtype.itemsize)), array, *map(np.uint64, (*array.shape, *strides)))


def numba_kernels() -> Iterator[Variant]:
    def of(kernel: str, n: int, *shapes: tuple[int, ...], more: Iterable[object] = ()) -> Variant:
        def launch(target: Target) -> Launch:
            arrays = [word for shape in shapes for word in _spread(floats(target, *shape))]
            return call(target, PTX_FOLDER / f"numba_{kernel}.ptx", kernel, blocks(n), 256).bind(*arrays, *more)

        return Variant("Numba", f"{kernel}, {' x '.join(map(str, shapes[-1]))}", launch)

    yield from (of("saxpy", n, (n,), (n,), (n,), more=(np.float32(2),)) for n in (MI, 8 * MI))
    yield of("row_sums", 1 << 15, (1 << 15,), (1 << 15, 256))
    yield of("column_sums", 1 << 15, (1 << 15,), (256, 1 << 15))
    yield from (of("smooth", n, (n,), (n,)) for n in (MI, 8 * MI))


def triton_kernels() -> Iterator[Variant]:
    def of(
        name: str, kernel: str, grid: int, warps: int, shapes: tuple[tuple[int, ...], ...], *numbers: object, shared: int = 0
    ) -> Variant:
        def launch(target: Target) -> Launch:
            path = PTX_FOLDER / f"triton_{name}.ptx"
            scratch = np.uint64(0), np.uint64(0)
            return call(target, path, kernel, grid, 32 * warps, shared).bind(*(floats(target, *one) for one in shapes), *numbers, *scratch)

        return Variant("Triton", f"{name}, {' x '.join(map(str, shapes[-1]))}", launch)

    n = 8 * MI
    yield of("add_4_warps", "add", n // 1024, 4, ((n,),) * 3, np.int32(n))
    yield of("add_1_warp", "add", n // 128, 1, ((n,),) * 3, np.int32(n))
    yield of("add_unaligned", "add", n // 1024, 4, ((n,),) * 3, np.int32(n))
    for rows in (2048, 8192):
        yield of("softmax", "softmax", rows, 4, ((rows, 1024),) * 2, np.int32(1024), shared=128)
    yield of("column_means", "column_means", 256, 4, ((1 << 15,), (256, 1 << 15)), np.int32(256), np.int32(1 << 15))
    yield _triton_product()
    yield _triton_attention()


def _triton_product(n: int = 512) -> Variant:
    def launch(target: Target) -> Launch:
        a, b = (target.zeros((n, n), np.float16) for _ in range(2))
        sizes = (np.int32(n),) * 3
        product = call(target, HERE / "kernels" / "matmul.ptx", "matmul", (n // 64, n // 64), 128, 49152)
        return product.bind(floats(target, n, n), a, b, *sizes, np.uint64(0), np.uint64(0))

    return Variant("Triton", f"matmul of halves, {n}", launch)


def _triton_attention(n: int = 4096) -> Variant:
    def launch(target: Target) -> Launch:
        arrays = [target.zeros((n, 64), np.float16) for _ in range(3)]
        attention = call(target, HERE / "kernels" / "attention.ptx", "attention", n // 64, 128, 57344)
        return attention.bind(floats(target, n, 64), *arrays, np.int32(n), np.float32(0.125), np.uint64(0), np.uint64(0))

    return Variant("Triton", f"attention, {n}", launch)


GENERATORS: dict[str, Callable[[], Iterator[Variant]]] = {
    "copies by vector width": copies_by_width,
    "reduction ladder": reductions,
    "stencils by block shape": stencils_by_shape,
    "strided gathers": strided_gathers,
    "bank conflicts": bank_conflicts,
    "histograms in shared memory": shared_histograms,
    "occupancy": occupancy,
    "arithmetic": arithmetic,
    "barriers": barriers,
    "stores": stores,
    "tensor products": tensor_products,
    "launches": launches,
    "copies, shifted and strided": copies_shifted,
    "transposes": transposes,
    "stencil variants": stencil_variants,
    "matrix products by tile": products,
    "random gathers": random_gathers,
    "atomics by contention": atomics,
    "textures by block shape": textures,
    "waves of blocks": waves,
    "sparse matrix times vector": sparse_products,
    "public kernels": public_kernels,
    "Numba": numba_kernels,
    "Triton": triton_kernels,
}

FAMILIES = {family: tuple(GENERATORS[family]()) for family in (*TUNED, *SET_ASIDE)}
VARIANTS = {variant.title: variant for family in FAMILIES.values() for variant in family}

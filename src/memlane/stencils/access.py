"""Generate code that kernels share: accesses to cells with boundary conditions, reductions over a block, and the layout of statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memlane.stencils.cell import HALF_HELPERS, HELPERS, REGISTER, STORED, literal, plain
from memlane.stencils.geometry import RANGE, Geometry, range_name
from memlane.stencils.problem import Problem
from memlane.stencils.sums import HELPER


def combined(kind: str, first: str, second: str) -> str:
    """Return the C++ expression that reduces two values."""
    return f"{first} + {second}" if kind == "sum" else f"{kind}imum({first}, {second})"


def access_functions(geometry: Geometry, dtypes: list[str]) -> Iterator[str]:
    """Yield the functions that compute addresses of cells. The accesses themselves are inlined in the kernel, where the compiler attributes
    them to the line of the rule that reads or writes."""
    yield "template <typename T> __device__ __forceinline__ const T* cell_at(const T* field, int z, int y, int x) {"
    yield "    return field + (inside_z(z) * PLANE + inside_y(y) * PITCH + inside_x(x));"
    yield "}"
    yield "template <typename P, typename T> __device__ __forceinline__ const P* row_at(const T* field, int z, int y, int x0) {"
    yield "    return reinterpret_cast<const P*>(field + (inside_z(z) * PLANE + inside_y(y) * PITCH + x0));"
    yield "}"
    yield "template <typename P, typename T> __device__ __forceinline__ P* own_row(T* field, int z, int y, int x0) {"
    yield "    return reinterpret_cast<P*>(field + (z * PLANE + y * PITCH + x0));"
    yield "}"
    for dtype in sorted(set(dtypes)):
        yield from _chunk_functions(dtype)
    for dtype in sorted(set(dtypes)) if has_numbers(geometry) else ():
        yield f"__device__ __forceinline__ {REGISTER[dtype]} {outside_name(dtype)}(int z, int y, int x) {{  // the value behind a face"
        last: str | None = None
        for axis in (2, 1, 0):
            for test, value in geometry.numbers(axis):
                yield f"    if ({test}) return {literal(value, dtype)};"
                last = literal(value, dtype)
        yield f"    return {last};"
        yield "}"


_CHUNKS = {"f2": "ushort", "f4": "float", "f8": "double", "u1": "uchar"}
"""Names of CUDA's vector types, without the number of elements, by type in memory."""


def chunk(dtype: str, vector: int) -> int:
    """Return the number of cells of one vector access: as many as fit in 16 bytes, at most four."""
    return min(vector, 2 if dtype == "f8" else 4)


def chunk_type(dtype: str, cells: int) -> str:
    """Return the C++ type of an access of so many cells."""
    return STORED[dtype] if cells == 1 else f"{_CHUNKS[dtype]}{cells}"


def _chunk_functions(dtype: str) -> Iterator[str]:
    """Yield the functions that unpack and pack the vector accesses of a type."""
    stored, register = STORED[dtype], REGISTER[dtype]
    for cells in (1, 2) if dtype == "f8" else (1, 2, 4):
        kind, name = chunk_type(dtype, cells), f"{_CHUNKS[dtype]}{cells}"
        parts = ["row"] if cells == 1 else [f"row.{one}" for one in "xyzw"[:cells]]
        taken = " ".join(f"to[{at}] = widened({part});" for at, part in enumerate(parts))
        yield f"__device__ __forceinline__ void unpack(const {kind} row, {register}* to) {{ {taken} }}"
        if dtype != "u1":
            put = " ".join(f"narrow(cell[{at}], from[{at}]);" for at in range(cells))
            made = "cell[0]" if cells == 1 else f"make_{kind}({', '.join(f'cell[{at}]' for at in range(cells))})"
            head = f"__device__ __forceinline__ {kind} pack_{name}(const {register}* from)"
            yield f"{head} {{ {stored} cell[{cells}]; {put} return {made}; }}"


def packed(dtype: str, cells: int, value: str) -> str:
    """Return the vector of so many cells that is packed from the values that begin at `value`."""
    return f"pack_{_CHUNKS[dtype]}{cells}({value})"


def has_numbers(geometry: Geometry) -> bool:
    """Return whether cells outside a face with a constant value may be read."""
    return any(geometry.numbers(axis) for axis in range(3))


def outside_name(dtype: str) -> str:
    return f"outside_{dtype}"


def march_begins(geometry: Geometry, names: list[str], axes: Sequence[int] = (0, 1, 2)) -> list[str]:
    """Return the beginning of a kernel for a range of cells: pointers to where cell 0 along some axes of each field would lie."""
    strides = zip(range(3), (" * PLANE", " * PITCH", ""), strict=True)
    before = " + ".join(f"{range_name(0, axis)}{stride}" for axis, stride in strides if geometry.cut[axis] and axis in axes)
    return [f"{plain(name)}_field -= {before};" for name in names] if before else []


def march(geometry: Geometry, block: str, planes: int) -> str:
    """Return the definitions of the planes through which a block marches: from `first` to before `end`."""
    begin = f"{RANGE[3]} + " if geometry.cut[0] else ""
    return f"const int first = {begin}{block} * {planes}, end = min(first + {planes}, {geometry.end(0)});"


def local_planes(geometry: Geometry) -> list[str]:
    """Return the beginning of a kernel for some planes of a part: from here on planes are counted in the memory of the part, so that
    addresses need no 64-bit origin, and reads are clamped to planes that exist."""
    if not geometry.cut[0]:
        return []
    origin, first, last, *computed = RANGE
    low, high = geometry.conditions[0]
    return [
        f"{first} = {first if low == 'periodic' else f'max({first}, 0)'} - {origin};",
        f"{last} = {last if high == 'periodic' else f'min({last}, NZ - 1)'} - {origin};",
        *(f"{name} -= {origin};" for name in computed),
    ]


def place_of_reads(geometry: Geometry, vector: int) -> list[str]:
    """Return where a thread reads its vector of a row: behind the ends of the row where its cells come from, or anything."""
    if geometry.cut[2]:
        origin, *ends = (range_name(which, 2) for which in range(3))
        first, last = (f"({end} & -{vector})" for end in ends)
        return [
            f"const int x_first = max({first}, {origin}), x_last = min({last}, {origin} + PITCH - {vector});",
            "const int x_read = min(max(x0, x_first), x_last);  // no result depends on cells that a launch may not read",
        ]
    if "periodic" in geometry.conditions[2]:
        wrapped = "x0 < 0 ? x0 + NX : x0 >= NX ? x0 - NX : x0"
        return [f"const int x_read = min(max({wrapped}, 0), NX - {vector});"]
    return [f"const int x_read = min(max(x0, 0), PITCH - {vector});  // no result depends on cells behind the ends of a row"]


def range_parameters(geometry: Geometry) -> list[str]:
    """Return the parameters of kernels that only kernels for a range of cells have."""
    return [f"int {range_name(which, axis)}" for axis in range(3) if geometry.cut[axis] for which in range(len(RANGE))]


def load_cell(geometry: Geometry, dtype: str, field: str, to: str, where: tuple[str, str, str]) -> list[str]:
    """Return the statement that reads one cell, inside the grid or outside."""
    value = f"widened(*cell_at({field}, {', '.join(where)}))"
    tests = [test for axis in range(3) for test in _outside(geometry, axis, where[axis])]
    if tests:
        value = f"({' || '.join(tests)}) ? {outside_name(dtype)}({', '.join(where)}) : {value}"
    return [f"{to} = {value};"]


def load_row(geometry: Geometry, dtype: str, field: str, to: str, first: int, where: tuple[str, str, str], vector: int) -> list[str]:
    """Return the statements that read the vector of cells of a thread into `to[first]` and those behind it."""
    lines = body_loads(dtype, field, to, first, where, vector)
    tests = [test for axis in (0, 1) for test in _outside(geometry, axis, where[axis])]
    condition = geometry.conditions[2][1]
    continues = condition == "fixed" or (condition == "periodic" and geometry.cut[2])
    ragged = geometry.extents[2] % vector != 0 and geometry.radius[2][1] and not continues
    if ragged:
        tests.append(f"{where[2]} + {vector} > NX")
    if tests:
        place = where[0], where[1], geometry.held(f"{where[2]} + c", 2)
        cell = load_cell(geometry, dtype, field, f"{to}[{first} + c]", place)[0]
        lines += [f"if ({' || '.join(tests)})", *each(vector, f"    {cell}")]
    return lines


def body_loads(dtype: str, field: str, to: str, first: int, where: tuple[str, str, str], vector: int) -> list[str]:
    """Return the accesses that read a vector of cells, which lie in the memory of the field."""
    cells = chunk(dtype, vector)
    kind = chunk_type(dtype, cells)
    return [
        f"unpack(*row_at<{kind}>({field}, {where[0]}, {where[1]}, {shifted(where[2], at)}), {to} + {first + at});"
        for at in range(0, vector, cells)
    ]


def store_row(dtype: str, field: str, value: str, where: tuple[str, str, str], vector: int) -> list[str]:
    """Return the accesses that write a vector of cells, with the hint to evict them first, because they are not read again soon."""
    cells = chunk(dtype, vector)
    lines = []
    for first in range(0, vector, cells):
        at = f"own_row<{chunk_type(dtype, cells)}>({field}, {where[0]}, {where[1]}, {shifted(where[2], first)})"
        letter, width = {"f4": ("f", "f32"), "f8": ("d", "f64")}.get(dtype, ("", ""))
        if not letter:
            lines.append(f"*{at} = {packed(dtype, cells, f'{value} + {first}')};")
            continue
        kind = f"st.global.cs{f'.v{cells}' if cells > 1 else ''}.{width}"
        places = ", ".join(f"%{one + 1}" for one in range(cells))
        values = ", ".join(f'"{letter}"({value}[{first + one}])' for one in range(cells))
        lines.append(f'asm volatile("{kind} [%0], {"{" + places + "}" if cells > 1 else places};" :: "l"({at}), {values});')
    return lines


def _outside(geometry: Geometry, axis: int, at: str) -> list[str]:
    """Return the conditions under which a cell lies outside a face of an axis with a constant value."""
    if at in ("z", "y", "x0", "first"):
        return []  # the thread's own
    return [test.replace("zyx"[axis], at, 1) for test, _ in geometry.numbers(axis)]


def helpers(problem: Problem) -> str:
    """Return the functions that kernels of a problem need for any shape of the grid."""
    exact = problem.exact_sums and "sum" in problem.reductions.values()
    kinds = sorted(set(problem.reductions.values()) - ({"sum"} if exact else set()))
    half = "f2" in {problem.grid.dtype, *(problem.dtype(name) for name in problem.fields)}
    return "\n".join([HELPERS + (HALF_HELPERS if half else ""), *([HELPER] if exact else []), *(_BLOCK_REDUCE.replace("KIND", one).replace(
        "COMBINED", combined(one, "value", "other")) for one in kinds)])  # fmt: skip


_BLOCK_REDUCE = """\
template <int THREADS>
__device__ __forceinline__ void block_reduce_KIND(double& value, int thread) {
    __shared__ double part[THREADS];
    part[thread] = value;
    __syncthreads();
    for (int span = 1; span < THREADS; span *= 2) {
        if (thread % (2 * span) == 0 && thread + span < THREADS) {
            const double other = part[thread + span];
            value = COMBINED;
            part[thread] = value;
        }
        __syncthreads();
    }
}
"""


def each(cells: int, statement: str) -> list[str]:
    """Return a loop over the cells of a thread."""
    return ["#pragma unroll", f"for (int c = 0; c < {cells}; ++c) {statement}"]


def either(near: str, inner: list[str], other: list[str]) -> list[str]:
    """Return a branch between the code for interior cells and the code for cells at a boundary. Common code is duplicated, because the
    compiler would otherwise move registers that only one branch changes."""
    lines = [f"if ({near}) {{  // no boundary changes anything", *indented(inner, 1), "} else {"]
    return [*lines, '    asm volatile("");  // without it the compiler would join the two again', *indented(other, 1), "}"]


def shifted(name: str, by: int) -> str:
    """Return `name + by` as one writes it."""
    return name if by == 0 else f"{name} {'+' if by > 0 else '-'} {abs(by)}"


def indented(lines: list[str], depth: int) -> list[str]:
    """Return lines moved to the right; directives stay where they are."""
    return [line if line.startswith("#") else "    " * depth + line for line in lines]


def call(function: str, values: list[str], width: int = 120) -> list[str]:
    """Return a call of a function, broken into lines."""
    lines, line = [], f"{function}("
    for position, value in enumerate(values):
        piece = value + (", " if position + 1 < len(values) else ");")
        if len(line) + len(piece) > width:
            lines.append(line.rstrip())
            line = "    "
        line += piece
    return [*lines, line]

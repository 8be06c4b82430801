"""Text that kernels share: access to cells with the boundary in it, reductions over a block, and how statements are laid out."""

from __future__ import annotations

from collections.abc import Iterator

from memlane.stencils.cell import HALF_HELPERS, HELPERS, REGISTER, STORED, literal
from memlane.stencils.geometry import Geometry
from memlane.stencils.problem import Problem


def combined(kind: str, first: str, second: str) -> str:
    """Return the C++ expression that reduces two values."""
    return f"{first} + {second}" if kind == "sum" else f"{kind}imum({first}, {second})"


def access_functions(geometry: Geometry, dtypes: list[str]) -> Iterator[str]:
    """Yield the functions by which kernels find cells. The accesses themselves stand in the kernel, where the compiler ascribes them to the
    line of the rule that reads or writes."""
    yield "template <typename T, int V> struct alignas(sizeof(T) * V) Vector { T cell[V]; };"
    yield "template <typename T> __device__ __forceinline__ const T* cell_at(const T* field, int z, int y, int x) {"
    yield "    return field + inside_z(z) * PLANE + inside_y(y) * PITCH + inside_x(x);"
    yield "}"
    yield "template <int V, typename T> __device__ __forceinline__ const Vector<T, V>* row_at(const T* field, int z, int y, int x0) {"
    yield "    return reinterpret_cast<const Vector<T, V>*>(field + inside_z(z) * PLANE + inside_y(y) * PITCH + x0);"
    yield "}"
    yield "template <int V, typename T> __device__ __forceinline__ Vector<T, V>* own_row(T* field, int z, int y, int x0) {"
    yield "    return reinterpret_cast<Vector<T, V>*>(field + z * PLANE + y * PITCH + x0);"
    yield "}"
    yield "template <typename T, int V, typename R> __device__ __forceinline__ void unpack(const Vector<T, V>& row, R* to) {"
    yield "#pragma unroll"
    yield "    for (int c = 0; c < V; ++c) to[c] = widened(row.cell[c]);"
    yield "}"
    yield "template <typename T, int V, typename R> __device__ __forceinline__ Vector<T, V> packed(const R (&from)[V]) {"
    yield "    Vector<T, V> row;"
    yield "#pragma unroll"
    yield "    for (int c = 0; c < V; ++c) narrow(row.cell[c], from[c]);"
    yield "    return row;"
    yield "}"
    for dtype in sorted(set(dtypes)) if has_numbers(geometry) else ():
        yield f"__device__ __forceinline__ {REGISTER[dtype]} {outside_name(dtype)}(int z, int y, int x) {{  // the value behind a face"
        last: str | None = None
        for axis in (2, 1, 0):
            for test, value in geometry.numbers(axis):
                yield f"    if ({test}) return {literal(value, dtype)};"
                last = literal(value, dtype)
        yield f"    return {last};"
        yield "}"


def has_numbers(geometry: Geometry) -> bool:
    """Return whether a cell may be read behind a face with a number."""
    return any(geometry.numbers(axis) for axis in range(3))


def outside_name(dtype: str) -> str:
    return f"outside_{dtype}"


def load_cell(geometry: Geometry, dtype: str, field: str, to: str, where: tuple[str, str, str]) -> list[str]:
    """Return the statement that reads one cell, inside the grid or outside."""
    value = f"widened(*cell_at({field}, {', '.join(where)}))"
    tests = [test for axis in range(3) for test in _outside(geometry, axis, where[axis])]
    if tests:
        value = f"({' || '.join(tests)}) ? {outside_name(dtype)}({', '.join(where)}) : {value}"
    return [f"{to} = {value};"]


def load_row(geometry: Geometry, dtype: str, field: str, to: str, first: int, where: tuple[str, str, str], vector: int) -> list[str]:
    """Return the statements that read the vector of cells of a thread into `to[first]` and those behind it."""
    lines = [f"unpack(*row_at<{vector}>({field}, {', '.join(where)}), {to} + {first});"]
    tests = [test for axis in (0, 1) for test in _outside(geometry, axis, where[axis])]
    ragged = geometry.extents[2] % vector != 0 and geometry.radius[2][1] and geometry.conditions[2][1] != "fixed"
    if ragged:
        tests.append(f"{where[2]} + {vector} > NX")
    if tests:
        cell = load_cell(geometry, dtype, field, f"{to}[{first} + c]", (where[0], where[1], f"{where[2]} + c"))[0]
        lines += [f"if ({' || '.join(tests)})", *each(vector, f"    {cell}")]
    return lines


def store_row(dtype: str, field: str, value: str, where: str, vector: int) -> list[str]:
    """Return the statement that writes the vector of cells of a thread. Nothing of it is read again soon, so it is marked for eviction."""
    at = f"own_row<{vector}>({field}, {where})"
    letter, width = {"f4": ("f", "f32"), "f8": ("d", "f64")}.get(dtype, ("", ""))
    if letter and vector in (1, 2, 4) and vector * (4 if dtype == "f4" else 8) <= 16:
        kind = f"st.global.cs{f'.v{vector}' if vector > 1 else ''}.{width}"
        places = ", ".join(f"%{one + 1}" for one in range(vector))
        values = ", ".join(f'"{letter}"({value}[{one}])' for one in range(vector))
        return [f'asm volatile("{kind} [%0], {"{" + places + "}" if vector > 1 else places};" :: "l"({at}), {values});']
    return [f"*{at} = packed<{STORED[dtype]}, {vector}>({value});"]


def _outside(geometry: Geometry, axis: int, at: str) -> list[str]:
    """Return the conditions under which a cell lies behind a face of an axis that has a number."""
    if at in ("z", "y", "x0", "first"):
        return []  # the thread's own
    return [test.replace("zyx"[axis], at, 1) for test, _ in geometry.numbers(axis)]


def helpers(problem: Problem) -> str:
    """Return the functions that kernels of a problem need whatever its shape."""
    kinds = sorted(set(problem.reductions.values()))
    half = "f2" in {problem.grid.dtype, *(problem.dtype(name) for name in problem.fields)}
    return "\n".join([HELPERS + (HALF_HELPERS if half else ""), *(_BLOCK_REDUCE.replace("KIND", one).replace(
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

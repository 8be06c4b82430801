"""Write the PTX of the kernels of `predict_kernels` in Numba and Triton, which is committed so that a GPU is measured with the same text
that is modelled.

    python benchmarks/predict_python.py             # writes kernels/predict/*.ptx anew
"""

# mypy: ignore-errors

from __future__ import annotations

from corpus import KERNELS, kept_ptx

FOLDER = KERNELS / "predict"


def numba_kernels() -> dict[str, str]:
    """Return the PTX of the Numba kernels by name."""
    from numba import cuda, float32

    import memlane as ml

    def saxpy(out, x, y, a):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = a * x[i] + y[i]

    def row_sums(out, x):
        i = cuda.grid(1)
        if i < x.shape[0]:
            total = float32(0)
            for k in range(x.shape[1]):
                total += x[i, k]
            out[i] = total

    def column_sums(out, x):
        i = cuda.grid(1)
        if i < x.shape[1]:
            total = float32(0)
            for k in range(x.shape[0]):
                total += x[k, i]
            out[i] = total

    def smooth(out, x):
        tile = cuda.shared.array(258, float32)
        t, i = cuda.threadIdx.x, cuda.grid(1)
        tile[t + 1] = x[i]
        if t == 0 and i > 0:
            tile[0] = x[i - 1]
        if t == 255 and i + 1 < x.size:
            tile[257] = x[i + 1]
        cuda.syncthreads()
        if i > 0 and i + 1 < x.size:
            out[i] = (tile[t] + tile[t + 1] + tile[t + 2]) / float32(3)

    signatures = {
        saxpy: "void(float32[::1], float32[::1], float32[::1], float32)",
        row_sums: "void(float32[::1], float32[:, ::1])",
        column_sums: "void(float32[::1], float32[:, ::1])",
        smooth: "void(float32[::1], float32[::1])",
    }
    return {f"numba_{one.__name__}": kept_ptx(ml.numba(one, signature, lineinfo=False)) for one, signature in signatures.items()}


def triton_kernels() -> dict[str, str]:
    """Return the PTX of the Triton kernels by name."""
    import triton
    import triton.language as tl

    import memlane as ml

    @triton.jit
    def add(out, a, b, n, BLOCK: tl.constexpr):  # noqa: N803
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(a + at, mask=at < n) + tl.load(b + at, mask=at < n), mask=at < n)

    @triton.jit
    def softmax(out, a, columns, BLOCK: tl.constexpr):  # noqa: N803
        at = tl.arange(0, BLOCK)
        row = tl.program_id(0) * columns
        value = tl.load(a + row + at, mask=at < columns, other=-1e30)
        power = tl.exp(value - tl.max(value, 0))
        tl.store(out + row + at, power / tl.sum(power, 0), mask=at < columns)

    @triton.jit
    def column_means(out, a, rows, columns, BLOCK: tl.constexpr):  # noqa: N803
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros([BLOCK], tl.float32)
        for row in range(rows):
            total += tl.load(a + row * columns + at, mask=at < columns)
        tl.store(out + at, total / rows, mask=at < columns)

    pointers = "*fp32:16, *fp32:16"
    return {
        "triton_add_4_warps": kept_ptx(ml.triton(add, f"{pointers}, *fp32:16, i32:16", {"BLOCK": 1024}, num_warps=4)),
        "triton_add_1_warp": kept_ptx(ml.triton(add, f"{pointers}, *fp32:16, i32:16", {"BLOCK": 128}, num_warps=1)),
        "triton_add_unaligned": kept_ptx(ml.triton(add, "*fp32, *fp32, *fp32, i32", {"BLOCK": 1024}, num_warps=4)),
        "triton_softmax": kept_ptx(ml.triton(softmax, f"{pointers}, i32:16", {"BLOCK": 1024}, num_warps=4)),
        "triton_column_means": kept_ptx(ml.triton(column_means, f"{pointers}, i32:16, i32:16", {"BLOCK": 128}, num_warps=4)),
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, ptx in {**numba_kernels(), **triton_kernels()}.items():
        (FOLDER / f"{name}.ptx").write_text(ptx)


if __name__ == "__main__":
    main()

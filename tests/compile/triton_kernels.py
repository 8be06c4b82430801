"""Ordinary Triton kernels, as people write them. Needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def vector_add(out, a, b, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(a + at, mask) + tl.load(b + at, mask), mask)


@triton.jit
def saxpy(y, x, alpha, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, alpha * tl.load(x + at) + tl.load(y + at))


@triton.jit
def softmax(out, x, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns
    values = tl.load(x + row * columns + at, mask, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, axis=0), mask)


@triton.jit
def layer_norm(out, x, weight, bias, columns, epsilon, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns
    values = tl.load(x + row * columns + at, mask, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(mask, values - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + epsilon)
    result = centred * scale * tl.load(weight + at, mask) + tl.load(bias + at, mask)
    tl.store(out + row * columns + at, result, mask)


@triton.jit
def matmul(c, a, b, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_at = a + rows[:, None] * k + inner[None, :]
    b_at = b + inner[:, None] * n + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, k, BLOCK_K):
        left = tl.load(a_at, (rows[:, None] < m) & (inner[None, :] < k - step), other=0.0)
        right = tl.load(b_at, (inner[:, None] < k - step) & (columns[None, :] < n), other=0.0)
        total = tl.dot(left, right, total)
        a_at += BLOCK_K
        b_at += BLOCK_K * n
    tl.store(c + rows[:, None] * n + columns[None, :], total, (rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def attention(out, q, k, v, n, scale, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDTH: tl.constexpr):
    """Softmax of rows that do not fit, as it is done by everyone: the scores of a block of keys at a time."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    inner, columns = tl.arange(0, WIDTH), tl.arange(0, BLOCK_N)
    queries = tl.load(q + rows[:, None] * WIDTH + inner[None, :])
    largest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    weight = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, WIDTH), tl.float32)
    for start in range(0, n, BLOCK_N):
        keys = tl.load(k + (start + columns)[:, None] * WIDTH + inner[None, :])
        scores = tl.dot(queries, keys.T) * scale
        now = tl.maximum(largest, tl.max(scores, 1))
        powers, fading = tl.exp(scores - now[:, None]), tl.exp(largest - now)
        values = tl.load(v + (start + columns)[:, None] * WIDTH + inner[None, :])
        total = tl.dot(powers.to(tl.float16), values, total * fading[:, None])
        weight, largest = weight * fading + tl.sum(powers, 1), now
    tl.store(out + rows[:, None] * WIDTH + inner[None, :], total / weight[:, None])


@triton.jit
def reduction(out, x, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + at, at < n, other=0.0)
    tl.atomic_add(out, tl.sum(total, axis=0))


@triton.jit
def histogram(bins, values, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(values + at, at < n, other=0) % BINS, BINS, at < n)
    tl.atomic_add(bins + tl.arange(0, BINS), counts)


@triton.jit
def transpose(out, a, rows, columns, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(a + i[:, None] * columns + j[None, :], (i[:, None] < rows) & (j[None, :] < columns))
    tl.store(out + j[:, None] * rows + i[None, :], tl.trans(tile), (j[:, None] < columns) & (i[None, :] < rows))


@triton.jit
def stencil(out, a, rows, columns, weight, BLOCK: tl.constexpr):
    i, j = tl.program_id(0) + 1, tl.program_id(1) * BLOCK + tl.arange(0, BLOCK) + 1
    at, mask = i * columns + j, j < columns - 1
    middle = tl.load(a + at, mask)
    around = tl.load(a + at - 1, mask) + tl.load(a + at + 1, mask) + tl.load(a + at - columns, mask) + tl.load(a + at + columns, mask)
    tl.store(out + at, middle + weight * (around - 4 * middle), mask)


@triton.jit
def scan(out, x, n, BLOCK: tl.constexpr):
    """Inclusive, within each block."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.cumsum(tl.load(x + at, at < n, other=0), axis=0), at < n)


@triton.jit
def gather(out, a, index, columns, BLOCK: tl.constexpr):
    row = tl.load(index + tl.program_id(0)).to(tl.int64)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(out + tl.program_id(0) * columns + at, tl.load(a + row * columns + at, at < columns), at < columns)


@triton.jit
def argmax(out, x, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * columns + at, at < columns, other=-float("inf"))
    tl.store(out + tl.program_id(0), tl.argmax(values, axis=0))


@triton.jit
def sort(out, x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def activate(out, x, n, BLOCK: tl.constexpr):
    """In bfloat16, through a function of its own."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, at < n).to(tl.float32)
    tl.store(out + at, gelu(values).to(tl.bfloat16), at < n)


@triton.jit
def random_dropout(out, x, n, seed, p, BLOCK: tl.constexpr):
    """Philox numbers; what is dropped is zero."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, at) > p
    tl.store(out + at, tl.where(keep, tl.load(x + at, at < n) / (1 - p), 0.0), at < n)


@triton.jit
def locked_sum(total, lock, x, BLOCK: tl.constexpr):
    """Each program adds to one number under a lock."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.sum(tl.load(x + at), axis=0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    before = tl.load(total)
    tl.debug_barrier()  # all threads have read what one of them will write
    tl.store(total, before + mine)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def with_type_query(out, x, BLOCK: tl.constexpr):
    """An instruction that the emulator does not know."""
    at = tl.arange(0, BLOCK)
    words = tl.load(x + at)
    words = tl.inline_asm_elementwise("{.reg .u64 a; .reg .pred p; istypep.texref p,a; mov.b32 $0,$1;}", "=r,r", [words], tl.int32, True, 1)
    tl.store(out + at, words)


@triton.jit
def descriptor_copy(out, a, rows, columns, BLOCK: tl.constexpr):
    """Through a tensor descriptor, which Triton keeps in scratch memory."""
    source = tl.make_tensor_descriptor(a, [rows, columns], [columns, 1], [BLOCK, BLOCK])
    at = tl.arange(0, BLOCK)
    tl.store(out + at[:, None] * BLOCK + at[None, :], source.load([0, 0]))

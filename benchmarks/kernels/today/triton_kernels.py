"""Define kernels as they are written in Triton today: products with a group of weights, with persistent blocks, and of one-byte numbers;
attention backward; a norm, a softmax, a scan, the largest of a row, pages of a cache. (`../attention.ptx` is attention forward.)

`python benchmarks/corpus_today.py` compiles them to the `.ptx` files beside this one, so that who counts them needs no Triton.
"""

# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl


@triton.jit
def tile(a_at, b_at, k, step_a, step_b, BLOCK_K: tl.constexpr, total):
    """Add the product of a band of rows and a band of columns."""
    for _ in range(0, k, BLOCK_K):
        total = tl.dot(tl.load(a_at), tl.load(b_at), total)
        a_at += step_a
        b_at += step_b
    return total


@triton.jit
def grouped_product(c, a, b, ends, groups, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Multiply rows of a by the weights of their group, as for experts: group g has the rows up to ends[g], a multiple of BLOCK_M."""
    row = tl.program_id(0) * BLOCK_M
    group = 0
    for one in range(groups):
        group += tl.where(row >= tl.load(ends + one), 1, 0)
    rows, columns, inner = row + tl.arange(0, BLOCK_M), tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    a_at = a + rows[:, None] * k + inner[None, :]
    b_at = b + group * k * n + inner[:, None] * n + columns[None, :]
    total = tile(a_at, b_at, k, BLOCK_K, BLOCK_K * n, BLOCK_K, tl.zeros((BLOCK_M, BLOCK_N), tl.float32))
    tl.store(c + rows[:, None] * n + columns[None, :], total)


@triton.jit
def persistent_product(c, a, b, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Multiply matrices; each block computes one tile after another."""
    across = n // BLOCK_N
    for number in range(tl.program_id(0), m // BLOCK_M * across, tl.num_programs(0)):
        rows = number // across * BLOCK_M + tl.arange(0, BLOCK_M)
        columns, inner = number % across * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
        a_at, b_at = a + rows[:, None] * k + inner[None, :], b + inner[:, None] * n + columns[None, :]
        total = tile(a_at, b_at, k, BLOCK_K, BLOCK_K * n, BLOCK_K, tl.zeros((BLOCK_M, BLOCK_N), tl.float32))
        tl.store(c + rows[:, None] * n + columns[None, :], total)


@triton.jit
def byte_product(c, a, b, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SUM: tl.constexpr):
    """Multiply one-byte numbers, b by its columns; the sums are floats or integers."""
    rows, columns = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_at, b_at = a + rows[:, None] * k + inner[None, :], b + columns[None, :] * k + inner[:, None]
    total = tile(a_at, b_at, k, BLOCK_K, BLOCK_K, BLOCK_K, tl.zeros((BLOCK_M, BLOCK_N), SUM))
    tl.store(c + rows[:, None] * n + columns[None, :], total)


@triton.jit
def fp8_product(c, a, b, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    byte_product(c, a, b, n, k, BLOCK_M, BLOCK_N, BLOCK_K, tl.float32)


@triton.jit
def int8_product(c, a, b, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    byte_product(c, a, b, n, k, BLOCK_M, BLOCK_N, BLOCK_K, tl.int32)


@triton.jit
def attention_of_keys(dk, dv, q, k, v, do, high, delta, n, scale, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Compute the gradients of a block of keys and values, over all queries."""
    rows, inner = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    at = rows[:, None] * WIDTH + inner[None, :]
    keys, values = tl.load(k + at), tl.load(v + at)
    of_keys, of_values = tl.zeros((BLOCK, WIDTH), tl.float32), tl.zeros((BLOCK, WIDTH), tl.float32)
    for start in range(0, n, BLOCK):
        others = start + tl.arange(0, BLOCK)
        queries = tl.load(q + others[:, None] * WIDTH + inner[None, :])
        powers = tl.exp(tl.dot(keys, queries.T) * scale - tl.load(high + others)[None, :])
        out = tl.load(do + others[:, None] * WIDTH + inner[None, :])
        of_values += tl.dot(powers.to(tl.float16), out)
        slope = powers * (tl.dot(values, out.T) - tl.load(delta + others)[None, :]) * scale
        of_keys += tl.dot(slope.to(tl.float16), queries)
    tl.store(dk + at, of_keys)
    tl.store(dv + at, of_values)


@triton.jit
def attention_of_queries(dq, q, k, v, do, high, delta, n, scale, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Compute the gradients of a block of queries, over all keys."""
    rows, inner = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    at = rows[:, None] * WIDTH + inner[None, :]
    queries, out = tl.load(q + at), tl.load(do + at)
    largest, slopes = tl.load(high + rows), tl.load(delta + rows)
    total = tl.zeros((BLOCK, WIDTH), tl.float32)
    for start in range(0, n, BLOCK):
        others = (start + tl.arange(0, BLOCK))[:, None] * WIDTH + inner[None, :]
        keys = tl.load(k + others)
        powers = tl.exp(tl.dot(queries, keys.T) * scale - largest[:, None])
        slope = powers * (tl.dot(out, tl.load(v + others).T) - slopes[:, None]) * scale
        total += tl.dot(slope.to(tl.float16), keys)
    tl.store(dq + at, total)


@triton.jit
def layer_norm(out, x, weight, bias, columns, epsilon, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns
    values = tl.load(x + row * columns + at, mask, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(mask, values - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + epsilon)
    tl.store(out + row * columns + at, centred * scale * tl.load(weight + at, mask) + tl.load(bias + at, mask), mask)


@triton.jit
def softmax(out, x, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns
    values = tl.load(x + row * columns + at, mask, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, axis=0), mask)


@triton.jit
def scan(out, x, n, BLOCK: tl.constexpr):
    """Compute the sums up to each element of a row, one block of it at a time."""
    row, before = tl.program_id(0), tl.zeros((), tl.int32)
    for start in range(0, n, BLOCK):
        at = row * n + start + tl.arange(0, BLOCK)
        values = tl.load(x + at)
        tl.store(out + at, tl.cumsum(values, axis=0) + before)
        before += tl.sum(values, axis=0)


@triton.jit
def top_k(out, x, n, BLOCK: tl.constexpr, K: tl.constexpr):
    """Store the largest elements of each row, in order."""
    row = tl.program_id(0)
    values = tl.load(x + row * n + tl.arange(0, BLOCK))
    tl.store(out + row * K + tl.arange(0, K), tl.topk(values, K))


@triton.jit
def paged_gather(out, pages, table, each, PAGE: tl.constexpr, WIDTH: tl.constexpr):
    """Gather rows of a cache that lies in pages, in the order of the table that names the pages."""
    request, number = tl.program_id(0), tl.program_id(1)
    page = tl.load(table + request * each + number)
    rows, columns = tl.arange(0, PAGE), tl.arange(0, WIDTH)
    inside = rows[:, None] * WIDTH + columns[None, :]
    tl.store(out + (request * each + number) * PAGE * WIDTH + inside, tl.load(pages + page * PAGE * WIDTH + inside))

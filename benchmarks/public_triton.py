"""Launch the kernels of Triton's tutorials, with sizes small enough for the emulator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from explain_cases import Arguments, floats, whole
from public_kernel import PublicTriton
from public_sources import TRITON

from memlane.launch import Target

_EACH = 131072


def _case(
    file: str,
    kernel: str,
    grid: tuple[int, ...],
    arguments: Arguments,
    signature: str,
    constexprs: Mapping[str, object],
    *,
    warps: int = 4,
    stages: int = 3,
    title: str = "",
) -> PublicTriton:
    path = f"python/tutorials/{file}.py"
    return PublicTriton(
        TRITON,
        path,
        kernel,
        grid,
        (32 * warps,),
        arguments,
        title=title,
        signature=signature,
        constexprs=constexprs,
        num_warps=warps,
        num_stages=stages,
    )


def _halves(target: Target, *shape: int) -> object:
    return target.array(np.random.default_rng(5).normal(size=shape).astype(np.float16))


def _dropout(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return floats(target, _EACH), whole(target, 2, _EACH), target.zeros(_EACH), _EACH, 0.5


def _layer_norm(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    x, y = (_halves(target, 264, 2048) for _ in range(2))
    return x, y, _halves(target, 2048), _halves(target, 2048), target.zeros(264), target.zeros(264), 2048, 2048, 1e-5


def _product(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    """Return arguments: three square matrices, their sizes, and the strides of their rows."""
    return *(_halves(target, 512, 512) for _ in range(3)), *[512] * 6


_PRODUCT = ", ".join([*["*fp16:16"] * 3, *["i32:16"] * 6])
_STRIDES = {"stride_ak": 1, "stride_bn": 1, "stride_cn": 1}
_HEADS = {"stride_qk": 1, "stride_kk": 1, "stride_vn": 1, "stride_on": 1}


def _attention(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    q, k, v, out = (_halves(target, 2, 256, 64) for _ in range(4))
    outer = 2 * 256 * 64, 256 * 64, 64
    return q, k, v, np.float32(0.125), target.zeros(512), out, *outer, *outer, *outer, *outer, 1, 2, 256


def _before(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return _halves(target, 2, 256, 64), _halves(target, 2, 256, 64), target.zeros(512), 1, 2, 256


def _backward(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    q, k, v, do, dq, dk, dv = (_halves(target, 2, 256, 64) for _ in range(7))
    return q, k, v, np.float32(0.125), do, dq, dk, dv, target.zeros(512), target.zeros(512), 2 * 256 * 64, 256 * 64, 64, 2, 256


_FOUR = ", ".join(["*fp16:16"] * 4)
CASES = (
    _case(
        "01-vector-add",
        "add_kernel",
        (128,),
        lambda target, _: (*(floats(target, _EACH) for _ in range(3)), _EACH),
        "*fp32:16, *fp32:16, *fp32:16, i32:16",
        {"BLOCK_SIZE": 1024},
    ),
    _case(
        "02-fused-softmax",
        "softmax_kernel",
        (264,),
        lambda target, _: (target.zeros(528 * 781), floats(target, 528 * 781), 781, 781, 528, 781),
        "*fp32:16, *fp32:16, i32, i32, i32:16, i32",
        {"BLOCK_SIZE": 1024, "num_stages": 4},
        warps=8,
    ),
    _case(
        "03-matrix-multiplication",
        "matmul_kernel",
        (16,),
        _product,
        _PRODUCT,
        {**_STRIDES, "BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8, "ACTIVATION": ""},
        stages=4,
        title="matmul_kernel (03)",
    ),
    _case("04-low-memory-dropout", "_dropout", (128,), _dropout, "*fp32:16, *i32:16, *fp32:16, i32:16, fp32", {"BLOCK_SIZE": 1024}),
    _case(
        "04-low-memory-dropout",
        "_seeded_dropout",
        (128,),
        lambda target, _: (floats(target, _EACH), target.zeros(_EACH), _EACH, 0.5, 123),
        "*fp32:16, *fp32:16, i32:16, fp32, i32",
        {"BLOCK_SIZE": 1024},
    ),
    _case(
        "05-layer-norm",
        "_layer_norm_fwd_fused",
        (264,),
        _layer_norm,
        f"{_FOUR}, *fp32:16, *fp32:16, i32:16, i32:16, fp32",
        {"BLOCK_SIZE": 2048},
        warps=8,
    ),
    _case(
        "05-layer-norm",
        "_layer_norm_bwd_dwdb",
        (16,),
        lambda target, _: (floats(target, 96, 2048), floats(target, 96, 2048), target.zeros(2048), target.zeros(2048), 96, 2048),
        "*fp32:16, *fp32:16, *fp32:16, *fp32:16, i32:16, i32:16",
        {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 128},
    ),
    _case(
        "06-fused-attention",
        "_attn_fwd",
        (2, 2),
        _attention,
        f"*fp16:16, *fp16:16, *fp16:16, fp32, *fp32:16, *fp16:16, {', '.join(['i32:16'] * 12)}, i32, i32, i32:16",
        {**_HEADS, "HEAD_DIM": 64, "BLOCK_M": 128, "BLOCK_N": 64, "STAGE": 3},
    ),
    _case(
        "06-fused-attention",
        "_attn_bwd_preprocess",
        (2, 2),
        _before,
        "*fp16:16, *fp16:16, *fp32:16, i32, i32, i32:16",
        {"BLOCK_M": 128, "HEAD_DIM": 64},
    ),
    _case(
        "06-fused-attention",
        "_attn_bwd",
        (2, 1, 2),
        _backward,
        f"*fp16:16, *fp16:16, *fp16:16, fp32, {_FOUR}, *fp32:16, *fp32:16, i32:16, i32:16, i32:16, i32, i32:16",
        {"stride_d": 1, "BLOCK_M1": 32, "BLOCK_N1": 128, "BLOCK_M2": 128, "BLOCK_N2": 32, "BLK_SLICE_FACTOR": 2, "HEAD_DIM": 64},
        stages=5,
    ),
    _case(
        "07-extern-functions",
        "asin_kernel",
        (96,),
        lambda target, _: (floats(target, 98432), target.zeros(98432), 98432),
        "*fp32:16, *fp32:16, i32:16",
        {"BLOCK_SIZE": 1024},
    ),
    _case(
        "09-persistent-matmul",
        "matmul_kernel_persistent",
        (8,),
        _product,
        _PRODUCT,
        {**_STRIDES, "BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8, "NUM_SMS": 8},
        warps=8,
        title="matmul_kernel_persistent (09)",
    ),
)

"""Launch kernels of llm.c's development folder as the host code next to them does, with sizes small enough for the emulator."""

from __future__ import annotations

import numpy as np
from explain_cases import Arguments, floats, whole
from public_kernel import Public
from public_sources import LLM

from memlane.launch import Target

Extent = tuple[int, ...]


def _case(file: str, kernel: str, grid: Extent | int, block: Extent | int, arguments: Arguments, shared: int = 0) -> Public:
    grids, blocks = (one if isinstance(one, tuple) else (one,) for one in (grid, block))
    return Public(LLM, f"dev/cuda/{file}.cu", kernel, grids, blocks, arguments, shared)


def _floats(*sizes: int, then: tuple[object, ...] = ()) -> Arguments:
    return lambda target, _: (*(floats(target, size) for size in sizes), *then)


def _halves(*sizes: int, then: tuple[object, ...] = ()) -> Arguments:
    """Return arguments: arrays of two-byte numbers, then `then`."""
    return lambda target, _: (*(target.zeros(size, "u2") for size in sizes), *then)


def _embedded(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    arrays = target.zeros(8 * 128 * 128, "u2"), whole(target, 512, 1024), target.zeros(512 * 128, "u2"), target.zeros(128 * 128, "u2")
    return *arrays, 8, 128, 128


def _embedded_back(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return target.zeros(512 * 128), target.zeros(128 * 128), floats(target, 8 * 128 * 128), whole(target, 512, 1024), 8, 128, 128


def _norm(rows: int, channels: int) -> Arguments:
    return _floats(rows * channels, rows, rows, rows * channels, channels, channels, then=(rows, channels))


def _losses(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return target.zeros(4096), floats(target, 4096, 512), whole(target, 512, 4096), 16, 256, 512


def _logits(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return target.zeros((256, 512)), floats(target, 256), floats(target, 256, 512), whole(target, 512, 256), 4, 64, 512


def _flash(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    q, k, v = (floats(target, 4, 64, 64) for _ in range(3))
    lowest = target.array(np.full(256, -np.inf, np.float32))
    return q, k, v, 64, 64, 2, 2, 32, 32, 0.125, target.zeros(256), lowest, target.zeros((4, 64, 64))


_ADAM = (131072, 1e-3, 0.9, 0.999, 0.1, 0.001, 1e-8, 0.0)
_NORM, _SOFTMAX, _BIAS, _ATTENTION = "layernorm_forward", "softmax_forward", "matmul_backward_bias", "attention_forward"
CASES = (
    _case("encoder_forward", "encoder_forward_kernel1", 4, 256, _embedded),
    _case("encoder_forward", "encoder_forward_kernel2", 512, 256, _embedded),
    _case("gelu_forward", "gelu_forward_kernel1", 512, 256, _halves(131072, 131072, then=(131072,))),
    _case("residual_forward", "residual_forward_kernel1", 512, 256, _halves(131072, 131072, 131072, then=(131072,))),
    _case("permute", "permute_kernel", 768, 256, _floats(196608, 196608, then=(8, 12, 64, 32))),
    _case(_NORM, "layernorm_forward_kernel1", 4, 256, _norm(1024, 256)),
    _case(_NORM, "mean_kernel", 264, 256, _floats(264, 264 * 768, then=(264, 768, 256)), 1024),
    _case(_NORM, "normalization_kernel", 768, 256, _floats(196608, 196608, 256, 256, 768, 768, then=(4, 64, 768))),
    _case(_NORM, "layernorm_forward_kernel3", 264, 256, _norm(2112, 384)),
    _case(_NORM, "layernorm_forward_kernel5", 264, 256, _norm(264, 768)),
    _case(_SOFTMAX, "softmax_forward_kernel1", 4, 256, _floats(1024 * 256, 1024 * 256, then=(1024, 256))),
    _case(_SOFTMAX, "softmax_forward_kernel2", 264, 256, _floats(264 * 1024, 264 * 1024, then=(264, 1024)), 1024),
    _case(_SOFTMAX, "softmax_forward_kernel4", 264, 256, _floats(264 * 1024, 264 * 1024, then=(264, 1024)), 32),
    _case(_SOFTMAX, "softmax_forward_online_kernel1", 4, 256, _floats(1024 * 256, 1024 * 256, then=(1024, 256))),
    _case(_SOFTMAX, "softmax_forward_online_kernel8", 264, 256, _floats(2112 * 256, 2112 * 256, then=(2112, 256))),
    _case("crossentropy_forward", "crossentropy_forward_kernel1", 16, 256, _losses),
    _case("crossentropy_softmax_backward", "crossentropy_softmax_backward_kernel1", 512, 256, _logits),
    _case("adamw", "adamw_kernel2", 256, 512, _floats(131072, 131072, 131072, 131072, then=_ADAM)),
    _case(_BIAS, "matmul_backward_bias_kernel1", 264, 256, _halves(264, 1024 * 264, then=(4, 256, 264)), 1024),
    _case(_BIAS, "matmul_backward_bias_kernel2", 66, 128, _halves(264, 1024 * 264, then=(4, 256, 264))),
    _case(_BIAS, "matmul_backward_bias_kernel4", 24, 256, _halves(768, 512 * 768, then=(4, 128, 768)), 1024),
    _case("encoder_backward", "encoder_backward_kernel1", 512, 256, _embedded_back),
    _case(_ATTENTION, "attention_query_key_kernel1", 64, 256, _floats(16384, 2 * 64 * 384, then=(2, 64, 128, 2))),
    _case(_ATTENTION, "attention_softmax_kernel1", 8, 256, _floats(4 * 4 * 128 * 128, 4 * 4 * 128 * 128, then=(4, 128, 4))),
    _case(_ATTENTION, "attention_value_kernel1", 2, 256, _floats(4 * 32 * 256, 4 * 4 * 32 * 32, 4 * 32 * 768, then=(4, 32, 256, 4))),
    _case(_ATTENTION, "attention_forward_kernel2", (2, 2), 32, _flash, 28672),
    _case("matmul_forward", "matmul_forward_kernel1", (8, 8), (16, 16), _floats(16384, 16384, 16384, 128, then=(128, 128, 128))),
    _case(
        "layernorm_backward", "layernorm_backward_kernel1", 1, 256, _floats(32768, 128, 128, 32768, 32768, 128, 256, 256, then=(4, 64, 128))
    ),
)

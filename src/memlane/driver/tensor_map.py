"""Encode tensor maps for a GPU with its driver. `cuda.core` can do that too, but only for its own launches."""

from __future__ import annotations

from cuda.bindings import driver

from memlane.driver.calls import checked
from memlane.launch import Tiling

_TYPE, _SWIZZLE, _PROMOTION = driver.CUtensorMapDataType, driver.CUtensorMapSwizzle, driver.CUtensorMapL2promotion
_TYPES = {
    "u8": _TYPE.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    "u16": _TYPE.CU_TENSOR_MAP_DATA_TYPE_UINT16,
    "u32": _TYPE.CU_TENSOR_MAP_DATA_TYPE_UINT32,
    "s32": _TYPE.CU_TENSOR_MAP_DATA_TYPE_INT32,
    "u64": _TYPE.CU_TENSOR_MAP_DATA_TYPE_UINT64,
    "s64": _TYPE.CU_TENSOR_MAP_DATA_TYPE_INT64,
    "f16": _TYPE.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    "bf16": _TYPE.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    "f32": _TYPE.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    "f64": _TYPE.CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
}
_SWIZZLES = {
    "none": _SWIZZLE.CU_TENSOR_MAP_SWIZZLE_NONE,
    "32B": _SWIZZLE.CU_TENSOR_MAP_SWIZZLE_32B,
    "64B": _SWIZZLE.CU_TENSOR_MAP_SWIZZLE_64B,
    "128B": _SWIZZLE.CU_TENSOR_MAP_SWIZZLE_128B,
}
_PROMOTIONS = {
    "none": _PROMOTION.CU_TENSOR_MAP_L2_PROMOTION_NONE,
    "64B": _PROMOTION.CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
    "128B": _PROMOTION.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    "256B": _PROMOTION.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
}
_FILLS = {
    "zeros": driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    "nan": driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
}


def arguments(tiling: Tiling) -> tuple[object, ...]:
    """Return the arguments of `cuTensorMapEncodeTiled`."""
    wide, narrow = driver.cuuint64_t, driver.cuuint32_t
    return (
        _TYPES[tiling.element],
        len(tiling.extents),
        tiling.address,
        [wide(extent) for extent in tiling.extents],
        [wide(stride) for stride in tiling.strides or (16,)],  # ignored for one dimension, but the list must not be empty
        [narrow(extent) for extent in tiling.box],
        [narrow(step) for step in tiling.element_strides],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        _SWIZZLES[tiling.swizzle],
        _PROMOTIONS[tiling.promotion],
        _FILLS[tiling.fill],
    )


def encode(tiling: Tiling) -> bytes:
    """Return the 128 bytes of a tensor map. A context must be current."""
    made = checked(driver.cuTensorMapEncodeTiled(*arguments(tiling)))
    return b"".join(int(word).to_bytes(8, "little") for word in made.opaque)

"""Create textures and surfaces of a GPU: CUDA arrays, and the objects through which kernels access them. All calls need the context
current."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt
from cuda.bindings import driver

from memlane.driver.calls import checked
from memlane.driver.context import release_with
from memlane.launch import Sampling, Texels

_FORMATS = {
    "u1": driver.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8,
    "u2": driver.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT16,
    "u4": driver.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT32,
    "i1": driver.CUarray_format.CU_AD_FORMAT_SIGNED_INT8,
    "i2": driver.CUarray_format.CU_AD_FORMAT_SIGNED_INT16,
    "i4": driver.CUarray_format.CU_AD_FORMAT_SIGNED_INT32,
    "f2": driver.CUarray_format.CU_AD_FORMAT_HALF,
    "f4": driver.CUarray_format.CU_AD_FORMAT_FLOAT,
}
_MODES = {
    "wrap": driver.CUaddress_mode.CU_TR_ADDRESS_MODE_WRAP,
    "clamp": driver.CUaddress_mode.CU_TR_ADDRESS_MODE_CLAMP,
    "mirror": driver.CUaddress_mode.CU_TR_ADDRESS_MODE_MIRROR,
    "border": driver.CUaddress_mode.CU_TR_ADDRESS_MODE_BORDER,
}
_FILTERS = {
    "point": driver.CUfilter_mode.CU_TR_FILTER_MODE_POINT,
    "linear": driver.CUfilter_mode.CU_TR_FILTER_MODE_LINEAR,
}
_GATHER_EXTENT = 1 << 14
"""Maximum width and height of two-dimensional images with gather access (`tex2Dgather`), supported by every GPU that has it."""


class Image:
    """A CUDA array, destroyed with its last reference, after all work has finished."""

    def __init__(self, texels: Texels, writable: bool, context: Any) -> None:
        self.array: Any = checked(driver.cuArray3DCreate(array_descriptor(texels, writable)))
        release_with(self, context, driver.cuArrayDestroy, self.array)


class BoundObject:
    """A texture or surface object, destroyed with its last reference, after all work has finished."""

    def __init__(self, context: Any, destroy: Callable[[Any], Any], made: Any, image: Image | None = None) -> None:
        """Take ownership of an object. `image` is kept alive, so that it is destroyed after the object."""
        self.handle, self.image = int(made), image
        release_with(self, context, destroy, made)


def array_descriptor(texels: Texels, writable: bool) -> Any:
    """Return the descriptor for `cuArray3DCreate`; missing extents are 0, and layers count as depth."""
    width, height, depth = texels.extents
    described = driver.CUDA_ARRAY3D_DESCRIPTOR()
    described.Width = width
    described.Height = height if texels.dimensions > 1 else 0
    described.Depth = texels.layers or (depth if texels.dimensions > 2 else 0)
    described.Format = _FORMATS[texels.dtype.str[1:]]
    described.NumChannels = texels.channels
    flags = driver.CUDA_ARRAY3D_CUBEMAP if texels.cube else driver.CUDA_ARRAY3D_LAYERED if texels.layers else 0
    flags |= driver.CUDA_ARRAY3D_SURFACE_LDST if writable else 0
    if texels.geometry == "2d" and max(width, height) <= _GATHER_EXTENT:
        flags |= driver.CUDA_ARRAY3D_TEXTURE_GATHER
    described.Flags = flags
    return described


def copy_image(image: Image, texels: Texels, host: npt.NDArray[Any], to_host: bool) -> None:
    """Copy a whole image from or to C-contiguous host memory."""
    _, height, depth = texels.extents
    copy = driver.CUDA_MEMCPY3D()
    copy.WidthInBytes = texels.extents[0] * texels.texel_bytes
    copy.Height = height
    copy.Depth = texels.layers or depth
    host_kind, array_kind = driver.CUmemorytype.CU_MEMORYTYPE_HOST, driver.CUmemorytype.CU_MEMORYTYPE_ARRAY
    if to_host:
        copy.srcMemoryType, copy.srcArray = array_kind, image.array
        copy.dstMemoryType, copy.dstHost = host_kind, host.ctypes.data
        copy.dstPitch, copy.dstHeight = copy.WidthInBytes, height
    else:
        copy.srcMemoryType, copy.srcHost = host_kind, host.ctypes.data
        copy.srcPitch, copy.srcHeight = copy.WidthInBytes, height
        copy.dstMemoryType, copy.dstArray = array_kind, image.array
    checked(driver.cuMemcpy3D(copy))


def bind_texture(texels: Texels, sampling: Sampling, image: Image, context: Any) -> BoundObject:
    """Return a texture object over an image."""
    made = checked(driver.cuTexObjectCreate(_array_resource(image), sampling_descriptor(texels, sampling), None))
    return BoundObject(context, driver.cuTexObjectDestroy, made, image)


def sampling_descriptor(texels: Texels, sampling: Sampling) -> Any:
    """Return the texture descriptor for `cuTexObjectCreate`. The border colour stays zero, the default."""
    chosen = driver.CUDA_TEXTURE_DESC()
    chosen.addressMode = [_MODES[mode] for mode in sampling.address]
    chosen.filterMode = _FILTERS[sampling.filter]
    chosen.flags = (driver.CU_TRSF_NORMALIZED_COORDINATES if sampling.normalized else 0) | _reading(texels, sampling.read)
    return chosen


def _reading(texels: Texels, read: str) -> int:
    return int(driver.CU_TRSF_READ_AS_INTEGER) if read == "element" and texels.dtype.kind != "f" else 0


def bind_linear(texels: Texels, read: str, address: int, context: Any) -> BoundObject:
    """Return a texture object over linear memory."""
    resource = driver.CUDA_RESOURCE_DESC()
    resource.resType = driver.CUresourcetype.CU_RESOURCE_TYPE_LINEAR
    resource.res.linear.devPtr = driver.CUdeviceptr(address)
    resource.res.linear.format = _FORMATS[texels.dtype.str[1:]]
    resource.res.linear.numChannels = texels.channels
    resource.res.linear.sizeInBytes = texels.nbytes
    chosen = driver.CUDA_TEXTURE_DESC()
    chosen.flags = _reading(texels, read)
    return BoundObject(context, driver.cuTexObjectDestroy, checked(driver.cuTexObjectCreate(resource, chosen, None)))


def bind_surface(image: Image, context: Any) -> BoundObject:
    """Return a surface object over a writable image."""
    return BoundObject(context, driver.cuSurfObjectDestroy, checked(driver.cuSurfObjectCreate(_array_resource(image))), image)


def _array_resource(image: Image) -> Any:
    resource = driver.CUDA_RESOURCE_DESC()
    resource.resType = driver.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
    resource.res.array.hArray = image.array
    return resource

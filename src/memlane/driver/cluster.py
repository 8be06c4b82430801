"""Launch kernels in clusters of blocks, with the attributes that the driver does not find in the code."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from memlane.driver.calls import checked
from memlane.launch import Dim3, KernelCall, Launch, cluster_of
from memlane.launch.limits import PORTABLE_BLOCKS


def explicit_cluster(launch: Launch | KernelCall) -> Dim3 | None:
    """Return the cluster size to pass to the driver; None if the code contains it, or there are no clusters."""
    return None if launch.kernel.function.extents(".reqnctapercluster") else launch.cluster


def allow_cluster(launch: Launch | KernelCall, function: Any) -> None:
    """Enable clusters larger than the portable size; `bind` has checked that they were requested."""
    x, y, z = cluster_of(launch.kernel, launch.cluster) or (1, 1, 1)
    if x * y * z > PORTABLE_BLOCKS:
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        checked(driver.cuFuncSetAttribute(function, attribute, 1))


def launch_in_clusters(launch: Launch, cluster: Dim3, function: Any, stream: Any, parameters: int) -> None:
    """Launch a kernel with a cluster size, as `cuLaunchKernel` does without one."""
    attributes = [_attribute("CLUSTER_DIMENSION")]
    shape = attributes[0].value.clusterDim
    shape.x, shape.y, shape.z = cluster
    if launch.kernel.cooperative:
        attributes.append(_attribute("COOPERATIVE"))
        attributes[1].value.cooperative = 1
    configuration = driver.CUlaunchConfig()
    configuration.gridDimX, configuration.gridDimY, configuration.gridDimZ = launch.grid
    configuration.blockDimX, configuration.blockDimY, configuration.blockDimZ = launch.block
    configuration.sharedMemBytes, configuration.hStream = launch.shared_bytes, stream
    configuration.attrs, configuration.numAttrs = attributes, len(attributes)
    checked(driver.cuLaunchKernelEx(configuration, function, parameters, 0))


def set_cluster(node: Any, cluster: Dim3) -> None:
    """Set the cluster size of a graph node."""
    value = driver.CUkernelNodeAttrValue()
    shape = value.clusterDim
    shape.x, shape.y, shape.z = cluster
    checked(driver.cuGraphKernelNodeSetAttribute(node, driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value))


def _attribute(name: str) -> Any:
    attribute = driver.CUlaunchAttribute()
    attribute.id = getattr(driver.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
    return attribute

"""The vocabulary of running: arrays, kernels, launches, bound steps of plans, and the seam behind which something runs them.

Order inside: observation <- launch <- reports, progress, array <- texture, tensor_map <- arguments; checked <- observe <- prepared;
cluster <- kernel <- target.
"""

from memlane.launch.array import DeviceArray
from memlane.launch.bound import BoundCall, BoundCopy, BoundStep, End, Rows, StepGraph, chained
from memlane.launch.cluster import cluster_of
from memlane.launch.kernel import Kernel, KernelCall, LoadedModule, find_kernel, module_digest
from memlane.launch.launch import Argument, Dim3, Launch, LaunchTime, Stream
from memlane.launch.observation import (
    ACCESS_DTYPE,
    COUNT_FIELDS,
    EXAMPLE_DTYPE,
    SITE_FIELDS,
    SPACE_NAMES,
    SPACE_NUMBERS,
    Declared,
    DeclaredBuffer,
    ExampleOf,
    Layers,
    Observation,
)
from memlane.launch.observe import Observer, observed, observing, unobserved, watched
from memlane.launch.prepared import PlainLaunch, Prepared
from memlane.launch.progress import following, following_stages, stage, tell_progress
from memlane.launch.reports import Actor, Report
from memlane.launch.target import Target
from memlane.launch.tensor_map import ELEMENTS, FILLS, SWIZZLES, TensorMap, Tiling
from memlane.launch.texture import Sampling, Surface, Texels, Texture
from memlane.titles import plain_name

__all__ = [
    "ACCESS_DTYPE",
    "COUNT_FIELDS",
    "ELEMENTS",
    "EXAMPLE_DTYPE",
    "FILLS",
    "SITE_FIELDS",
    "SPACE_NAMES",
    "SPACE_NUMBERS",
    "SWIZZLES",
    "Actor",
    "Argument",
    "BoundCall",
    "BoundCopy",
    "BoundStep",
    "Declared",
    "DeclaredBuffer",
    "DeviceArray",
    "Dim3",
    "End",
    "ExampleOf",
    "Kernel",
    "KernelCall",
    "Launch",
    "LaunchTime",
    "Layers",
    "LoadedModule",
    "Observation",
    "Observer",
    "PlainLaunch",
    "Prepared",
    "Report",
    "Rows",
    "Sampling",
    "StepGraph",
    "Stream",
    "Surface",
    "Target",
    "TensorMap",
    "Texels",
    "Texture",
    "Tiling",
    "chained",
    "cluster_of",
    "find_kernel",
    "following",
    "following_stages",
    "module_digest",
    "observed",
    "observing",
    "plain_name",
    "stage",
    "tell_progress",
    "unobserved",
    "watched",
]

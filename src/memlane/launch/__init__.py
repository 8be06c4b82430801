"""The vocabulary of running: arrays, kernels, launches, copies, schedules, and the seam behind which something runs them.

Order inside: observation <- schedule <- reports, progress, array <- texture, tensor_map <- arguments; checked <- observe <- prepared;
cluster <- kernel <- target.
"""

from memlane.launch.array import DeviceArray
from memlane.launch.bound import BoundCall, BoundCopy, BoundStep, End, Rows, StepGraph
from memlane.launch.cluster import cluster_of
from memlane.launch.kernel import Kernel, KernelCall, LoadedModule, find_kernel, module_digest
from memlane.launch.observation import (
    ACCESS_DTYPE,
    COUNT_FIELDS,
    EXAMPLE_DTYPE,
    SITE_FIELDS,
    SPACE_NAMES,
    SPACE_NUMBERS,
    ExampleOf,
    Layers,
    Observation,
)
from memlane.launch.observe import Observer, observed, observing, unobserved, watched
from memlane.launch.prepared import PlainLaunch, Prepared
from memlane.launch.progress import following, following_stages, stage, tell_progress
from memlane.launch.reports import Actor, Report
from memlane.launch.schedule import Argument, Copy, Dim3, Launch, Schedule, Step, Stream, Timeline
from memlane.launch.target import Graph, Target
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
    "Copy",
    "DeviceArray",
    "Dim3",
    "End",
    "ExampleOf",
    "Graph",
    "Kernel",
    "KernelCall",
    "Launch",
    "Layers",
    "LoadedModule",
    "Observation",
    "Observer",
    "PlainLaunch",
    "Prepared",
    "Report",
    "Rows",
    "Sampling",
    "Schedule",
    "Step",
    "StepGraph",
    "Stream",
    "Surface",
    "Target",
    "TensorMap",
    "Texels",
    "Texture",
    "Tiling",
    "Timeline",
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

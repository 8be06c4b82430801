"""The vocabulary of running: arrays, kernels, launches, bound steps of plans, and the seam behind which something runs them.

Order inside: configuration, memory <- events, texture, tensor_map <- arguments, limits, observation, kernel_names <- kernel <- checked,
progress, bound <- observe <- prepared <- target.
"""

from memlane.launch.arguments import Argument, ArgumentRule, pointer_parameters
from memlane.launch.bound import (
    Axis,
    BoundCall,
    BoundCopy,
    BoundStep,
    Copies,
    End,
    Graphs,
    Place,
    Rows,
    StepGraph,
    chained,
    offsets_of,
    same_kinds,
    whole_copy,
)
from memlane.launch.configuration import Dim3, Origin, Stream
from memlane.launch.events import DoneEvent, Event, Streams, event_handle, stream_handle
from memlane.launch.kernel import (
    Kernel,
    KernelCall,
    Launch,
    Launcher,
    LaunchTime,
    LoadedModule,
    Loader,
    Observation,
    QuickCall,
    Timer,
    module_digest,
)
from memlane.launch.kernel_names import find_kernel
from memlane.launch.limits import cluster_of
from memlane.launch.memory import DeviceArray, Memory
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
)
from memlane.launch.observe import Observer, StepObserver, adds_clock_reads, observed, observing, show_step, unobserved, watched
from memlane.launch.prepared import PlainLaunch, Prepared
from memlane.launch.progress import following, following_stages, stage, tell_progress
from memlane.launch.reports import Actor, Report
from memlane.launch.target import Target, whole_target
from memlane.launch.tensor_map import ELEMENTS, FILLS, SWIZZLES, TensorMap, TensorMaps, Tiling
from memlane.launch.texture import Images, Sampling, Surface, Texels, Texture
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
    "ArgumentRule",
    "Axis",
    "BoundCall",
    "BoundCopy",
    "BoundStep",
    "Copies",
    "Declared",
    "DeclaredBuffer",
    "DeviceArray",
    "Dim3",
    "DoneEvent",
    "End",
    "Event",
    "ExampleOf",
    "Graphs",
    "Images",
    "Kernel",
    "KernelCall",
    "Launch",
    "LaunchTime",
    "Launcher",
    "Layers",
    "LoadedModule",
    "Loader",
    "Memory",
    "Observation",
    "Observer",
    "Origin",
    "Place",
    "PlainLaunch",
    "Prepared",
    "QuickCall",
    "Report",
    "Rows",
    "Sampling",
    "StepGraph",
    "StepObserver",
    "Stream",
    "Streams",
    "Surface",
    "Target",
    "TensorMap",
    "TensorMaps",
    "Texels",
    "Texture",
    "Tiling",
    "Timer",
    "adds_clock_reads",
    "chained",
    "cluster_of",
    "event_handle",
    "find_kernel",
    "following",
    "following_stages",
    "module_digest",
    "observed",
    "observing",
    "offsets_of",
    "plain_name",
    "pointer_parameters",
    "same_kinds",
    "show_step",
    "stage",
    "stream_handle",
    "tell_progress",
    "unobserved",
    "watched",
    "whole_copy",
    "whole_target",
]

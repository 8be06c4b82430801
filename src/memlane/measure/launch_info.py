"""Describe a launch for a trace, without any measurement."""

from __future__ import annotations

from memlane.launch import Launch, cluster_of
from memlane.record import ArrayArgument, LaunchInfo


def launch_info(number: int, launch: Launch, scheme: str = "") -> LaunchInfo:
    """Return the description of the launch with that number in the trace. `scheme`: of its probes, empty if it had none."""
    return LaunchInfo(
        id=number,
        kernel=launch.kernel.title,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=launch.shared_bytes,
        stream=launch.stream.number,
        arguments=tuple(argument.text for argument in launch.arguments),
        scheme=scheme,
        cluster=cluster_of(launch.kernel, launch.cluster),
        device=launch.kernel.target.name,
        path=() if launch.origin is None else launch.origin.path,
        turns=() if launch.origin is None else launch.origin.turns,
        arrays=tuple(
            ArrayArgument(position, one.memory[1], one.dtype, one.shape)
            for position, one in enumerate(launch.arguments)
            if one.memory is not None and one.shape is not None
        ),
        language="" if launch.kernel.function.convention is None else launch.kernel.function.convention.language,
    )

"""Set up how the ranks of an MPI program pass planes: through the host, or from memory of devices by a CUDA-aware MPI or by NCCL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from memlane.driver import nccl
from memlane.errors import MemlaneError, RankError, StencilError
from memlane.launch import Target
from memlane.source import shortened
from memlane.timeloop.mpi import EXCHANGE, EXCHANGE_ON_DEVICES, Ranks

if TYPE_CHECKING:
    from memlane.driver import Device
    from memlane.targets import BoundPlan, PlanRun

CUDA_AWARE = "MEMLANE_MPI_CUDA_AWARE"
"""Environment variable that says whether MPI takes memory of GPUs: 1 or 0. Without it the MPI is asked."""
_SWITCHES = {"CRAY MPICH": "MPICH_GPU_SUPPORT_ENABLED", "MVAPICH2": "MV2_USE_CUDA"}
"""Words in the version of an MPI, and the environment variable that switches on its support of GPU memory."""
_NAP_PART = 2e-3
"""Share of the time waited for a GPU that passes between two looks."""


@dataclass(frozen=True)
class RankTransport:
    """One way to pass planes between ranks: the function that plans call, and how (`RankStage`)."""

    function: str
    reason: str
    is_direct: bool = True
    enqueues: bool = False

    @property
    def shows_memory(self) -> bool:
        """Whether the thread that runs the plan shows memory of devices to MPI, between graphs."""
        return self.is_direct and not self.enqueues


RANK_TRANSPORTS = {
    "mpi": RankTransport(EXCHANGE, "messages of MPI through memory of the host", is_direct=False),
    "mpi-cuda": RankTransport(EXCHANGE_ON_DEVICES, "messages of MPI, which takes memory of the devices"),
    "nccl": RankTransport(nccl.EXCHANGE, "sends and receives of NCCL between memory of the GPUs", enqueues=True),
}
"""Transports between ranks."""


class Agreed(Protocol):
    """A function by which all ranks learn the values of all, or raise the error of one of them."""

    def __call__(self, value: Any, refused: Exception | None, what: str) -> list[Any]: ...


def check_target(transport: str, target: Target) -> None:
    """Raise StencilError for a target that has no such transport."""
    if transport == "nccl" and target.modelled:
        raise StencilError(
            f"transport='nccl' connects GPUs; {target.name} is emulated: pass a GPU as target, or transport='mpi' or 'mpi-cuda'"
        )


def check_mpi(transport: str, target: Target, ranks: Ranks) -> None:
    """Raise RankError if MPI cannot do on a GPU what a transport needs."""
    if target.modelled:  # whose memory is that of the host
        return
    if transport == "mpi" and not ranks.calls_from_any_thread:
        raise RankError("MPI was started for calls of one thread: let mpi4py start it, with mpi4py.rc.thread_level = 'multiple'")
    if transport == "mpi-cuda" and not is_cuda_aware(ranks.version, ranks.memory_kinds, ranks.says_cuda, os.environ):
        raise RankError(
            f"transport='mpi-cuda' passes memory of GPUs to MPI, and this MPI ({ranks.version}) does not say that it takes it: load the "
            f"module of a CUDA-aware MPI, set ${CUDA_AWARE}=1 if you know that it is one, or pass transport='mpi', which stages planes "
            "through the host"
        )


def is_cuda_aware(version: str, kinds: str, says_cuda: bool, environment: Mapping[str, str]) -> bool:
    """Return whether an MPI takes memory of GPUs.

    `kinds` are the kinds of memory that it names, `says_cuda` is the answer of its function `MPIX_Query_cuda_support`. Some have neither
    and are switched on by an environment variable. `$MEMLANE_MPI_CUDA_AWARE` overrules all of them. Raise RankError if that is not 0 or 1.
    """
    given = environment.get(CUDA_AWARE, "")
    if given not in ("", "0", "1"):
        raise RankError(f"${CUDA_AWARE} is {shortened(given)!r}: set it to 1 if MPI takes memory of GPUs, to 0 if not, or leave it unset")
    if given:
        return given == "1"
    switch = next((variable for word, variable in _SWITCHES.items() if word in version.upper()), "")
    is_switched_on = bool(switch) and environment.get(switch, "0") not in ("", "0")
    return says_cuda or is_switched_on or any(kind.partition(":")[0] == "cuda" for kind in kinds.split(","))


class NcclLink:
    """The connection of a rank to its neighbours by NCCL. While the GPU waits for them, the host polls, so that no wait is endless."""

    def __init__(self, ranks: Ranks, target: Target, neighbours: Iterable[int], agreed: Agreed) -> None:
        """Connect all ranks. Raise RankError on all of them if one cannot."""
        self._ranks = ranks
        device: Any = target
        others = [rank for rank in sorted(set(neighbours)) if rank != ranks.number]
        _of_first(nccl.check_library, agreed)
        name = _of_first(lambda: _checked_name(ranks, device, agreed), agreed)
        before = nccl.communicator(device)
        is_there = all(agreed(before is not None, None, "whether NCCL has connected them before"))
        with ranks.telling(), ranks.ending("the connection of all ranks by NCCL"):
            self._communicator = before if is_there and before is not None else nccl.Communicator(device, ranks.number, ranks.count, name)
            self._communicator.connect(others, ranks.number)
        with ranks.telling():
            event = target.record()
            self._wait(event.done, "the first exchange by NCCL")
            self._communicator.check()

    def run(self, bound: BoundPlan) -> PlanRun:
        """Run a plan, and wait for it no longer than the limit allows."""
        if bound.is_prepared:
            started = bound.start()
        else:  # its graphs capture exchanges, for which NCCL may have to reach the other ranks
            with self._ranks.ending("the preparation of exchanges by NCCL"):
                started = bound.start()
        self._wait(started.done, "planes of the neighbours by NCCL")
        return started.wait()

    def _wait(self, is_done: Callable[[], bool], what: str) -> None:
        def looked() -> bool:
            self._communicator.raise_failure()
            return is_done()

        try:
            self._ranks.wait_until(looked, what, nap_part=_NAP_PART)
        except BaseException:  # including Ctrl-C: otherwise kernels on the GPU would wait for ever
            self._communicator.abort()
            raise


def _checked_name(ranks: Ranks, device: Device, agreed: Agreed) -> bytes:
    """Return the name by which the ranks find each other. Raise StencilError if two of them share a GPU."""
    used = agreed((nccl.device_uuid(device), device.name), None, "the GPU of each rank")
    uuids = [uuid for uuid, _ in used]
    for rank, uuid in enumerate(uuids):
        first = uuids.index(uuid)
        if first < rank:
            raise StencilError(
                f"with transport='nccl' each rank has a GPU of its own, and ranks {first} and {rank} share {used[rank][1]}: start fewer "
                "ranks, or pass transport='mpi'"
            )
    return nccl.unique_id() if ranks.number == 0 else b""


def _of_first(function: Callable[[], Any], agreed: Agreed) -> Any:
    """Return what a function returns on rank 0. If it raises an error on one rank, all raise one."""
    refused, found = None, None
    try:
        found = function()
    except MemlaneError as error:
        refused = error
    return agreed(found, refused, "the start of NCCL")[0]

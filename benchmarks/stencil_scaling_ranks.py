"""Run the steps of a stencil on the ranks of an MPI program; `stencil_scaling.py` starts this.

    mpiexec -n 4 python benchmarks/stencil_scaling_ranks.py cuda:0 "Himeno M" --transport nccl --every 1,2,4

Rank 0 prints a line of JSON for each number of steps between exchanges, overlapped and not. Ranks take the GPU of their number; where there
is one GPU, all share it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from stencil_scaling_cases import EVERY, case_of

from memlane.targets import devices as named_devices
from memlane.targets import target as named_target
from memlane.timeloop.distributed import distributed
from memlane.timeloop.mpi import world
from memlane.timeloop.sharing import RANKS_BY

_ROUNDS, _STEPS = 5, 400


def main() -> None:
    """Run a case with all steps between exchanges that its slabs allow."""
    command = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    command.add_argument("target")
    command.add_argument("case")
    command.add_argument("--transport", default="mpi", choices=RANKS_BY)
    command.add_argument("--every", default="", help="steps between exchanges, as 1,2,4 (default: 1 to 8)")
    command.add_argument("--quick", action="store_true")
    given = command.parse_args()
    ranks = world()
    if ranks.count == 1:
        command.error("there is one rank: mpiexec belongs to another MPI than mpi4py, or started one process")
    gpus = ranks.count if given.target.startswith("emulator") else len(named_devices(given.target))
    own = named_target(f"cuda:{ranks.number_on_machine}" if 1 < ranks.count <= gpus and given.target == "cuda:0" else given.target)
    case = case_of(given.case, ranks.count, given.quick)
    every = [int(one) for one in given.every.split(",")] if given.every else EVERY[:2] if given.quick else EVERY
    for k in every:
        for overlap in (True, False):
            options = {"variant": None, "fmad": True, "exchange_every": k, "overlap": overlap, "decomposition": None}
            run = distributed(case.problem, case.values(), [own], transport=given.transport, **options)
            unit = 2 * k
            steps = unit if own.modelled else unit * (_STEPS // unit)
            run.steps(steps)
            times = []
            for _ in range(1 if own.modelled else _ROUNDS):
                began = time.perf_counter()
                run.steps(steps)
                times.append(1e6 * (time.perf_counter() - began) / steps)
            if ranks.number == 0:
                line = {"k": k, "overlap": overlap, "us": statistics.median(times), "gpus": gpus, "modelled": own.modelled}
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

"""Who is right where `explain` and the label of a public kernel disagree, and why: written after the run, by reading both again. Labels
stay as they were."""

from __future__ import annotations

from collections.abc import Mapping

TOOL, BOTH, LABEL = "the tool", "both", "the label"

VERDICTS: Mapping[str, str] = {
    "gpu-rodinia: Fan2": f"{TOOL}: rows of a block have four threads, so four lanes share each sector and use half of it",
    "torch-sparse-0.6.18: uniform_random_walk_kernel": f"{TOOL}: the chain is there, but eight warps a scheduler fill its waits; sectors "
    "used to a quarter are what is left",
    "torch-sparse-0.6.18: non_diag_mask_kernel": f"{TOOL}: bytes are stored behind as many others as there are rows before, so nearly each "
    "request touches two sectors; it costs little",
    "torch-points-kernels-0.7.0: three_interpolate_kernel": f"{BOTH}: lanes gather from a row of 1 KiB, which is uncoalesced, and that row "
    "is read again and again from L1; in shared memory neither would cost much",
    "torch-points-kernels-0.7.0: three_interpolate_grad_kernel": f"{BOTH}: indices and weights are loaded again for each of 16 channels; "
    "what the atomics cost is only known at least",
    "torch-points-kernels-0.7.0: cubic_feature_sampling_kernel<float>": f"{BOTH}: the index is loaded again for each channel, on the line "
    "that gathers; what the stores cost is only known at least",
    "gsplat-1.5.3: gsplat::relocation_kernel<float>": f"{LABEL}, of the kernel: its lanes wait for each other in arithmetic; the tool "
    "charges divergence for the time of accesses alone, and of these the loads that repeat cost more",
}
"""By the name of the case."""

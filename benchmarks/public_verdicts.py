"""Who was right where `explain` and the label of a public kernel disagreed, on the emulator or on an H200, and why: written by reading both
again, with the counts of each line. Labels in the tables of cases stay as they were given; those that were wrong are put right here."""

from __future__ import annotations

from collections.abc import Mapping

TOOL, BOTH, LABEL = "the tool", "both", "the label"
MENDED = f"{LABEL}; mended"
"""The tool was wrong, and a rule was changed for it; the change is judged by a kernel of ours, or a trace, in `tests/diagnose`."""
FIRST_MISSES = "the first misses, for which all warps of a block wait, had been charged to the loads that repeat"

RELABELLED: Mapping[str, str] = {
    "gpu-rodinia: Fan2": "partial-sectors",
    "mmcv-2.2.0: roi_pool_forward_cuda_kernel<float>": "partial-sectors",
}
"""By the name of the case: what its label should have been, by what the findings are said to mean; `VERDICTS` says why."""

VERDICTS: Mapping[str, str] = {
    "gpu-rodinia: Fan2": f"{TOOL}: a block of 4 x 4 threads touches four rows of 16 bytes whichever index counts the rows; four lanes "
    "share each sector and use half of it",
    "gpu-rodinia: euclid": f"{MENDED}: its blocks do the same, and some multiprocessors got a second one",
    "torch-cluster-1.6.3: nearest_kernel<float>": f"{MENDED}: a multiprocessor has one block, which needs each of its points once; what "
    "repeats are the three coordinates in a sector, for which all loads but one in 132 had been charged",
    "torch-sparse-0.6.18: uniform_random_walk_kernel": f"{MENDED}: the chain was not told below a tenth of the lifetimes, though it "
    "costs more than the sectors, which are the second finding",
    "torch-sparse-0.6.18: non_diag_mask_kernel": f"{MENDED}: half of the lanes store on each way, and from the first to the last of them "
    "is more than a sector, wherever the row begins",
    "torch-sparse-0.6.18: spmm_kernel": f"{BOTH}: two arrays of 32 in registers leave room for two blocks, which the text does not show; "
    "but each warp has 32 loads under way, which probes undo and the rule does not see",
    "torch-points-kernels-0.7.0: three_interpolate_kernel": f"{MENDED}: {FIRST_MISSES}; both faults are there and cost nearly the same",
    "torch-points-kernels-0.7.0: three_interpolate_grad_kernel": f"{MENDED}: {FIRST_MISSES}; and what the atomics cost is only known at "
    "least",
    "torch-points-kernels-0.7.0: cubic_feature_sampling_kernel<float>": f"{MENDED}: {FIRST_MISSES}; and what the stores cost is only "
    "known at least",
    "gsplat-1.5.3: gsplat::relocation_kernel<float>": f"{LABEL}, of the kernel: its lanes wait for each other in arithmetic; the tool "
    "charges divergence for the time of accesses alone, and of these the loads that repeat cost more",
    "kernel-tuner-1.5.0: convolution_kernel": f"{MENDED}: the line reads shared memory and constants, which have none of the levels that "
    "outliers were said to come from",
    "mmcv-2.2.0: sigmoid_focal_loss_forward_cuda_kernel<float>": f"{MENDED}: its blocks do the same; the last wave is not full, and the "
    "emulator hands the rest to those multiprocessors that are done first",
    "mmcv-2.2.0: nms_cuda": f"{MENDED}: two lanes share each sector, but in some requests one is missing",
    "mmcv-2.2.0: roi_pool_forward_cuda_kernel<float>": f"{TOOL}: bins are a few elements wide, so that about three lanes share each sector",
    "mmcv-2.2.0: assign_score_withk_forward_cuda_kernel<float>": f"{MENDED}: {FIRST_MISSES}; each lane goes through a sector of its own",
    "implicit-0.7.3: implicit::gpu::calculate_loss_kernel<float>": f"{BOTH}, and they agree by accident: what the tool means on the line "
    "of the matrix are the user's own factors. A block loads the matrix once, side by side with others; to load it less each would have "
    "to take several users, which no rule can tell",
}
"""By the name of the case."""


def right_label(name: str, label: str) -> str:
    """The label of a case, put right where it was wrong."""
    return RELABELLED.get(name, label)

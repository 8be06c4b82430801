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
    "mmcv-2.2.0: sigmoid_focal_loss_forward_cuda_kernel<float>": f"{TOOL}: of 640 blocks 528 find room at once, and the rest fill "
    "some of the multiprocessors while the others have nothing to do",
    "mmcv-2.2.0: nms_cuda": f"{LABEL}, of line 59: two lanes share each sector, but in some requests one is missing, and the rule asks for "
    "two",
    "mmcv-2.2.0: roi_pool_forward_cuda_kernel<float>": f"{TOOL}: bins are a few elements wide, so that lanes in the next ones "
    "share sectors",
    "mmcv-2.2.0: assign_score_withk_forward_cuda_kernel<float>": f"{BOTH}: what the lanes gather lies apart, and each element of it is "
    "loaded again in the next turns",
    "implicit-0.7.3: implicit::gpu::calculate_loss_kernel<float>": f"{TOOL}: a block has one user, so it loads the matrix once; that other "
    "blocks do so at the same time saves nobody a load",
}
"""By the name of the case."""

"""Record who was right where `explain` and the label of a public kernel disagreed at the first run, or still do on the emulator, and why.

Written by reading both again, with the counts of each line. Labels in `public_labels.toml` stay as they were given; wrong ones are put
right here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from public_sources import NOTHING, SECOND_SET, THIRD_SET

TOOL, BOTH, LABEL = "the tool", "both", "the label"
MENDED = f"{LABEL}; mended"
"""The tool was wrong, and a rule was changed; the change is judged by a kernel of ours, or a trace, in `tests/diagnose`."""
_BEHIND = "loads of the vector wait behind the 32 sectors of each load of a row; that was taken to be saved by shared memory"
_COLUMNS = "two rows of the block go down columns side by side, so that two lanes share each sector; they were taken for structures"
_STEPS = "one warp alone goes on with the last steps of a tree of sums, between barriers that all pass; no other warp could do them"
_FULL = "where earlier kernels have filled L2 with results, loads wait for DRAM"

FIRST_RUN = "23 of the 32 that were held out, 70 of the 80 others, 93 of all 112"
"""Kernels that agreed with their labels before any rule was changed for them, at commit `FIRST_COMMIT`."""
FIRST_COMMIT = "ee1411a"


@dataclass(frozen=True)
class FirstRun:
    """The number of kernels of a later set that agreed when `explain` saw them for the first time, of how many, and the commit of its
    rules."""

    agreed: int
    kernels: int
    commit: str


FIRST_RUNS: Mapping[str, FirstRun] = {
    SECOND_SET: FirstRun(42, 54, "7532d3ef"),
    THIRD_SET: FirstRun(61, 66, "c43b1091"),
}
"""First runs by the name of the set; the kernels that did not agree are those of the set in `VERDICTS`."""

RELABELLED: Mapping[str, str] = {
    "cuda-samples: convolutionColumnsKernel": "bank-conflict",
    "shoc: findRadixOffsets": "uncoalesced-global",
    "professional-cuda-c-programming: transposeSmemPad": "bank-conflict",
    "SGEMM_CUDA: sgemmResolveBankConflicts<128, 128, 8, 8, 8>": "uncoalesced-global",
}
"""Labels as they should have been, by the name of the case and by the meaning of the findings; `VERDICTS` gives the reasons."""

VERDICTS: Mapping[str, str] = {
    "cuda-samples: mergeHistogram256Kernel": f"{MENDED}: {_STEPS}",
    "cuda-samples: mergeHistogram64Kernel": f"{MENDED}: {_STEPS}",
    "cuda-samples: convolutionColumnsKernel": f"{TOOL}: rows of 81 words put lane 31 into the bank of lane 0, which the reader overlooked",
    "cuda-samples: uniformUpdate": f"{MENDED}: the load that one warp makes for its block cannot be shared among warps",
    "cuda-samples: generateSpectrumKernel": f"{MENDED}: an aligned load of the same array was not recognised, because its place is "
    "computed from other parameters",
    "cuda-samples: updateHeightmapKernel": f"{LABEL}: rows of 8 lanes that skip every second word touch as many sectors as 8 words that "
    "begin off a sector, and counts do not tell them apart; the cost is right, the cause is not",
    "cuda-samples: reduce0<float>": f"{MENDED}: it costs 9.4 % of the lifetimes, and was told from 10 % on",
    "cuda-samples: reduce1<float>": f"{MENDED}: {_STEPS}",
    "cuda-samples: reduce2<float>": f"{MENDED}: {_STEPS}",
    "gpu-rodinia: calculate_temp": f"{BOTH}: each row touches one sector too many, which costs less than 0.2 % of lifetimes that go to "
    "arithmetic in double precision",
    "gpu-rodinia: reduce": f"{MENDED}: it costs 9.1 % of the lifetimes, and was told from 10 % on",
    "gpu-rodinia: srad_cuda_1": f"{BOTH}: the branches cost 0.9 % of the lifetimes, by the times of accesses alone; the compiler made "
    "one load of two arrays (so at no line), whose lanes meet in a bank",
    "llm.c: encoder_forward_kernel2": f"{BOTH}: bytes go singly, but rows of the tables are loaded several times, where wider loads gain"
    " little",
    "llm.c: layernorm_forward_kernel1": f"{LABEL}: four lines share one cause, and cost most together; of single lines the weights that "
    "all warps load again cost more",
    "llm.c: matmul_backward_bias_kernel1": f"{MENDED}: {_STEPS}",
    "llm.c: attention_query_key_kernel1": f"{BOTH}: half of the lanes are above the diagonal and have left; so each request has 16 lanes"
    " on average, whatever it loads",
    "llm.c: attention_value_kernel1": f"{BOTH}: rows are as long as their number, so that the last warps make many times the accesses of"
    " the first",
    "llm.c: matmul_forward_kernel1": f"{MENDED}: lanes with the same word were taken to share what lies beside it; and every eighth turn"
    " of a walk through an array was called an outlier",
    "llm.c: layernorm_backward_kernel1": f"{LABEL}: what 32 additions to one address cost beyond the first is only known at least",
    "triton: matmul_kernel (03)": f"{BOTH}: rows of 32 halves are half a line, so that lanes of a copy wait for each other where they "
    "read, by the wavefronts of copies as an H200 counts them; whether that is felt, no time tells",
    "PolyBench-ACC: atax_kernel1": f"{MENDED}: {_BEHIND}",
    "PolyBench-ACC: bicg_kernel2": f"{MENDED}: {_BEHIND}",
    "PolyBench-ACC: gesummv_kernel": f"{MENDED}: {_BEHIND}",
    "PolyBench-ACC: mvt_kernel1": f"{MENDED}: {_BEHIND}",
    "PolyBench-ACC: syrk_kernel": f"{MENDED}: {_BEHIND}",
    "PolyBench-ACC: corr_kernel": f"{MENDED}: {_BEHIND}",
    "PolyBench-ACC: runJacobi2D_kernel1": f"{MENDED}: five neighbours on one line were told as loads of one sector again and again, on "
    "five lines they were not",
    "shoc: findRadixOffsets": f"{TOOL}: the compiler stores both words of a thread at once, so lanes meet in no bank; the sizes go to "
    "16 rows, which the reader overlooked",
    "professional-cuda-c-programming: copyCol": f"{MENDED}: {_COLUMNS}",
    "professional-cuda-c-programming: transposeNaiveRow": f"{MENDED}: {_COLUMNS}",
    "professional-cuda-c-programming: transposeNaiveCol": f"{MENDED}: {_COLUMNS}",
    "professional-cuda-c-programming: transposeSmemPad": f"{TOOL}: rows have 18 words in this file, so the last two words of a warp's "
    "second row meet the first two of its first",
    "SGEMM_CUDA: sgemm_global_mem_coalesce<32>": f"{MENDED}: all warps of a block load the same row of B at a time, so L1 serves them; "
    "they wait together for a line that is on its way, and such long loads were taken to come from beyond L1",
    "SGEMM_CUDA: sgemmResolveBankConflicts<128, 128, 8, 8, 8>": f"{TOOL}: each lane takes half of a sector of its own, which the findings "
    "call uncoalesced; conflicts of the stores are few beside what is read",
    "Learn-CUDA-Programming: merging_kernel": f"{MENDED}: rows of the block are 16 bytes, half a sector; that was taken for a beginning "
    "off a sector",
    "Programming-Massively-Parallel-Processors: add_intermediate_results<float>": f"{BOTH}: the word that all lanes add is loaded again "
    "for each element, because the compiler cannot know that the stores leave it alone; a local variable would do",
    "Programming-Massively-Parallel-Processors: parallel_copy": f"{BOTH}: every warp loads the word that says where a row goes, and waits "
    "for it; one load for many rows would do, but rows are what takes the time",
}
"""Verdicts by the name of the case."""

SINCE: Mapping[str, str] = {
    "gpu-rodinia: find_index_kernel": f"{BOTH}: warps leave the walk at different places and wait at a barrier for the one that walks on, "
    "which the clock records; the loads cost nearly as much",
    "llm.c: normalization_kernel": f"{LABEL}: {_FULL}; alone, nothing is found",
    "Learn-CUDA-Programming: convolution_kernel_v3": f"{BOTH}: {_FULL}, and more for parts of sectors than in banks; alone, conflicts "
    "come first",
    "Programming-Massively-Parallel-Processors: blur_kernel": f"{BOTH}: {_FULL}, and more for parts of sectors than for those loaded "
    "again; alone, the latter come first",
}
"""Verdicts of kernels that agreed at the first run and do not now."""


def is_right(name: str, accepted: str, found: str) -> bool:
    """Return whether a first finding is one of the label, `a or b`, put right where that was wrong."""
    return found in (RELABELLED.get(name) or accepted).split(" or ")


def first_of(said: str) -> str:
    """Return the first finding of what a row quotes."""
    return NOTHING if said.startswith(NOTHING) else said.partition(" at line ")[0]

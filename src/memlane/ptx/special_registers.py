"""List the special registers of PTX, with their types (manual, section "Special Registers")."""

from __future__ import annotations

_VECTORS = ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")

COLOURS = {"r": "x", "g": "y", "b": "z", "a": "w"}
"""Alternative names of the elements of a vector."""
_SCALARS = {
    "u32": (
        *("laneid", "warpid", "nwarpid", "smid", "nsmid", "clock", "clock_hi", "globaltimer_lo", "globaltimer_hi"),
        *(f"lanemask_{relation}" for relation in ("eq", "le", "lt", "ge", "gt")),
        *(f"pm{index}" for index in range(8)),
        *("cluster_ctarank", "cluster_nctarank", "total_smem_size", "aggr_smem_size", "dynamic_smem_size"),
    ),
    "b32": (
        *(f"envreg{index}" for index in range(32)),
        *(f"reserved_smem_offset_{part}" for part in ("begin", "end", "cap", "0", "1")),
    ),
    "u64": ("gridid", "clock64", "globaltimer", "current_graph_exec", *(f"pm{index}_64" for index in range(8))),
    "pred": ("is_explicit_cluster",),
}

SPECIAL_REGISTERS: dict[str, str] = {
    **{f"%{name}.{axis}": "u32" for name in _VECTORS for axis in "xyzw"},
    **{f"%{name}": "u32" for name in _VECTORS},
    **{f"%{name}": kind for kind, names in _SCALARS.items() for name in names},
    "WARP_SZ": "u32",
}
"""Scalar type by name as written. `%tid` without an axis is a vector of four; `WARP_SZ` is a constant allowed where a number is."""

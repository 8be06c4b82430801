"""The counting layer: sectors and wavefronts of a warp access, as generated code."""

"""Remaps as data: arrays laid out anew on their way to a device, or on it.

`movement` says what moves where, `kernels` which kernel does it, and `transfers` makes the plan of an upload or a download in chunks;
`gathers` does so for rows by index, and `staging` copies on the host.
Nothing here holds an address or calls a target; `memlane.transfer` binds the plans and runs them.
"""

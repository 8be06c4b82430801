"""Plan remaps: arrays whose layout changes on their way to a device, or on it.

`movement` describes the data movement, `kernels` chooses the kernel, and `transfers` makes the plan of a chunked upload or download;
`gathers` does so for rows by index, and `staging` copies on the host. Nothing here holds an address or calls a target; `memlane.transfer`
binds the plans and runs them.
"""

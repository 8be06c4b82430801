"""Arrays uploaded, downloaded and laid out anew: the plans of `memlane.remap`, bound to memory and run.

points = ml.upload(target, host, layout="column-major")     # a DeviceArray that knows its layout
kernel[grid, block](points, n)
back = ml.download(points)                                  # in the shape and order of the host's array
"""

from memlane.transfer.arrays import LaidOutArray
from memlane.transfer.gathers import gather
from memlane.transfer.running import Transfer
from memlane.transfer.transfers import download, lay_out, upload

__all__ = ["LaidOutArray", "Transfer", "download", "gather", "lay_out", "upload"]

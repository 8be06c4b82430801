"""Upload, download and remap arrays: bind the plans of `memlane.remap` to memory and run them.

points = ml.upload(target, host, layout="column-major")     # a DeviceArray with its layout
kernel[grid, block](points, n)
back = ml.download(points)                                  # in the shape and order of the host's array
"""

from memlane.transfer.arrays import LaidOutArray
from memlane.transfer.gathers import gather
from memlane.transfer.transfer import Transfer
from memlane.transfer.transfers import download, lay_out, upload

__all__ = ["LaidOutArray", "Transfer", "download", "gather", "lay_out", "upload"]

"""Describe the links between the devices of a machine: one data file for each network, with the source of every number.

network = load("h200-nvlink")
link = network.link(devices=2)
link.exchange_us(262144, neighbours=1)     # time of an exchange of one face
"""

from memlane.network.catalogue import SHIPPED, from_file, load, named, names, of_chip
from memlane.network.model import UNMEASURED, Link, Network, Transfer

__all__ = ["SHIPPED", "UNMEASURED", "Link", "Network", "Transfer", "from_file", "load", "named", "names", "of_chip"]

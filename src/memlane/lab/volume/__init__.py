"""Test whether the access times of a trace explain how fast a program is, by volume rendering as in the evaluation published in 2012.

Rays go through a volume of bytes, procedurally made, whose values come from a 3D texture with linear filtering; there is a thread for each
pixel, samples are a voxel apart, front to back until the ray has left the volume or is 95 % opaque. The same picture is rendered with
blocks of 128 threads in eight shapes and from two viewpoints: both determine which texels a warp fetches together, and so the hit rate of
the texture cache. The fetches are traced, with `dependent` stamps and with `simple` ones, and the access frequency (the reciprocal of the
mean access time) is compared over the shapes with the frame rate and with the hit rate; `claims` lists what was found in 2012 and whether
it holds here. The kernel is ours, not that of the publication, which was an example of a toolkit of that time: where colours came from a
second texture there, they are arithmetic here, so that every fetch is one from the volume.

Of a frame of 1024 x 1024 pixels with 33 million accesses 512 warps are traced, one in 64, evenly spread over the image; every other warp
runs the original code. Each represents 64; the mean over accesses needs no other weight, because all represent as many. Along one SM all
warps are traced.

Prediction for an H200, before it was measured (1024^3 voxels, 1024 x 1024 pixels):

    picture     within 2 of 255 of NumPy's
    fig. 5      holds in kind: simple stamps put under 10 % of the time into accesses (they record some 5 to 20 cycles of an access),
                dependent ones over 80 % with both shapes, for 64 resident warps queue for one texture pipe. The gap between the shapes is
                smaller than 80 to 50.
    frame rate  seen from (0, 0, 0) the best shape is 1.2 to 2 times as fast as the worst; block-linear textures and an L1 of 256 KiB are
                more forgiving than what a GTX 480 had, and the best shapes are square (8x16, 16x8, 8x16 in warps of 8x4) rather than 128x1.
    figs. 6, 7  our access frequency goes with the frame rate, r over 0.9: with as many warps resident throughput is warps over latency. It
                goes with the hit rate, too, r over 0.7. That of simple stamps hardly varies and has no meaning.
    figs. 8, 9  the same; the picture is a turned one, and so are the shapes.
    fig. 10     the ends of the range of warps are fast; whether 8x16 or 2x64 varies more is open.

On the emulator every texture fetch takes the same time, because its clock does not model the memory layout of textures: access times are
meaningless there, and the lab says so. Hit rates come from `texture_cache`, which assumes a layout.
"""

from memlane.lab.volume.lab import VOLUME

__all__ = ["VOLUME"]

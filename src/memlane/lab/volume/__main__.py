"""Run the lab's auxiliary programs: `render`, for the profiler, and `draw`, for the figures of an earlier run."""

from __future__ import annotations

import sys
from pathlib import Path

from memlane.lab.volume.hits import render_once
from memlane.lab.volume.plots import draw_again

match sys.argv[1:]:
    case ["render", size, image, views, shapes, target]:
        render_once(size, image, views, shapes, target)
    case ["draw", folder, *out] if len(out) < 2:
        print(draw_again(Path(folder), Path(*out) if out else Path(folder)))
    case _:
        sys.exit("usage: python -m memlane.lab.volume draw FOLDER [OUT]")

"""Compiles every example to `ptx/`, where memlane finds it on machines without the CUDA packages. Run it after a change of a `.cu` file."""

from pathlib import Path

from memlane.compile import shipped

for source in sorted(Path(__file__).parent.glob("*.cu")):
    kept = shipped.path_beside(source)
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(shipped.make(source))
    print(f"Wrote {kept}")

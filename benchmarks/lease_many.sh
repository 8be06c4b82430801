#!/bin/sh
# Stencils on several GPUs, for whatever number of them the machine has (1, 2, 4, 8), in less than 10 minutes.
#
#   benchmarks/lease_many.sh OUT [MINUTES [OPTIONS]]    logs to OUT/*.log, the result to OUT/results/<chip>/stencil_scaling.json
#   benchmarks/lease_many.sh OUT 2 --target emulator:h200 --quick      tries it without a GPU
#
#   LAB=1 benchmarks/lease_many.sh OUT 4        runs `memlane lab stencil` on all GPUs as well, into OUT/lab_stencil
#
# The committed result of other numbers of GPUs is copied to OUT first, so that its rows are kept. PYTHON names the interpreter (default
# python3). MEMLANE_COMMIT names the commit where the checkout has no history.
set -u
OUT=${1:?usage: benchmarks/lease_many.sh OUT [MINUTES [OPTIONS]]}
MINUTES=${2:-9}
shift "$(($# < 2 ? $# : 2))"
PYTHON=${PYTHON:-python3}
cd "$(dirname "$0")/.." || exit 1
for result in $(cd benchmarks && ls results/*/stencil_scaling.json); do # of every chip, because a machine says only later which it has
    mkdir -p "$OUT/${result%/*}" && cp "benchmarks/$result" "$OUT/$result"
done
export MEMLANE_RESULTS="$OUT/results" PYTHONUNBUFFERED=1
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}"
export PATH="$PATH:/usr/local/cuda/bin"
MEMLANE_COMMIT=${MEMLANE_COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}
export MEMLANE_COMMIT

{
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader
    nvidia-smi topo -m
} >"$OUT/machine.log" 2>&1
head -n 9 "$OUT/machine.log"
"$PYTHON" benchmarks/stencil_scaling.py --minutes "$MINUTES" "$@" >"$OUT/stencil_scaling.log" 2>&1
code=$?
tail -n "${TAIL:-160}" "$OUT/stencil_scaling.log" | cut -c1-260
if [ -n "${LAB:-}" ]; then
    timeout "${LAB_S:-240}" "$PYTHON" -m memlane lab stencil --out "$OUT/lab_stencil" >"$OUT/lab_stencil.log" 2>&1 || code=$?
    tail -n 20 "$OUT/lab_stencil.log" | cut -c1-200
fi
exit "$code"

#!/bin/sh
# Everything that needs a GPU, in the order of its importance, each under a time limit: the tests, then the benchmarks.
#
#   benchmarks/lease.sh OUT      logs to OUT/*.log, results to OUT/results/<chip>/*.json
#
# PYTHON names the interpreter (default python3). MEMLANE_COMMIT names the commit where the checkout has no history. A step that fails
# does not stop the others; the exit code is the number of those that failed.
set -u
OUT=${1:?usage: benchmarks/lease.sh OUT}
PYTHON=${PYTHON:-python3}
cd "$(dirname "$0")/.." || exit 1
mkdir -p "$OUT/results"
export MEMLANE_RESULTS="$OUT/results" PYTHONUNBUFFERED=1
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}"
export PATH="$PATH:/usr/local/cuda/bin"
MEMLANE_COMMIT=${MEMLANE_COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}
export MEMLANE_COMMIT
failed=0

step() { # name, seconds, command...
    name=$1 limit=$2
    shift 2
    began=$(date +%s)
    if timeout "$limit" "$@" >"$OUT/$name.log" 2>&1; then state=done; else state="FAILED with $?" failed=$((failed + 1)); fi
    echo "== $name: $state after $(($(date +%s) - began)) s"
    tail -n "${TAIL:-12}" "$OUT/$name.log"
}

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader || true
TAIL=25 step tests 180 "$PYTHON" -m pytest -q -m gpu tests/gpu
TAIL=30 step accuracy 200 "$PYTHON" benchmarks/accuracy.py
TAIL=60 step outputs 150 "$PYTHON" benchmarks/outputs.py
TAIL=90 step counts 240 "$PYTHON" benchmarks/counts.py
TAIL=40 step shared_rule 90 "$PYTHON" benchmarks/shared_rule.py
TAIL=130 step perturbation 200 "$PYTHON" benchmarks/perturbation.py
TAIL=110 step latency 120 "$PYTHON" -m memlane lab latency --target cuda:0 --out "$OUT/latency"
step keep_latency 20 "$PYTHON" benchmarks/keep.py "$OUT/latency/result.json"
TAIL=90 step reduction 120 "$PYTHON" -m memlane lab reduction --target cuda:0 --out "$OUT/reduction"
step keep_reduction 20 "$PYTHON" benchmarks/keep.py "$OUT/reduction/result.json"
TAIL=50 step transfers 120 "$PYTHON" benchmarks/transfers.py
TAIL=60 step remap 120 "$PYTHON" -m memlane lab remap --target cuda:0 --out "$OUT/remap"
step keep_remap 20 "$PYTHON" benchmarks/keep.py "$OUT/remap/result.json"
TAIL=60 step volume 150 "$PYTHON" -m memlane lab volume --target cuda:0 --out "$OUT/volume"
step keep_volume 20 "$PYTHON" benchmarks/keep.py "$OUT/volume/result.json" frames warps series
TAIL=40 step predict_measured 400 "$PYTHON" benchmarks/predict_measured.py
TAIL=20 step differential 180 "$PYTHON" benchmarks/differential.py
ls -l "$OUT/results"/*/ 2>/dev/null
exit "$failed"

#!/usr/bin/env bash
# Builds the benchmarks (preset release) and prints their figures, one JSON object a line.
#
#   tests/bench/run.sh                     operations, then step
#   tests/bench/run.sh operations          single operations, processor time of one thread
#   tests/bench/run.sh step [FLAG...]      a whole training step; "--help" lists the flags, e.g. for a slow machine
#                                          --model smollm2-135m --micro-batch 1 --sequence 256 --steps 1
#   tests/bench/run.sh steps-to-target [FLAG...]
#                                          steps until sums are learnt (octavo example arithmetic), FP8 against BF16, paired
#                                          over seeds
#   tests/bench/run.sh gemms [FLAG...]     the same, with one kind of GEMM in FP8 at a time
#   OCTAVO_JOBS=N                          compile jobs (default: one per core)
#   OCTAVO_BENCH_PRESET=NAME               another preset than release
#
# A figure: {"name", "value", "unit", "baseline", "baseline_value", "ratio", "command", "cpu"}; the ratio is value over
# baseline_value, which was measured in the same run; "interval" is the 95 % interval of a value over seeds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

preset=${OCTAVO_BENCH_PRESET:-release}
bin=build/$preset/bin
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

build() {  # build TARGET...
  mkdir -p build
  { cmake --preset "$preset" && cmake --build --preset "$preset" -j "${OCTAVO_JOBS:-$(nproc)}" --target "$@"; } \
    >"build/$preset.bench.log" 2>&1 ||
    { tail -n 20 "build/$preset.bench.log" >&2; echo "run.sh: building failed; see build/$preset.bench.log" >&2; exit 1; }
}

operations() {
  build operations_bench
  "$bin/operations_bench" "$@"
}

step() {
  build step_bench
  "$bin/step_bench" --folder build/bench "$@"
}

steps_to_target() {
  build learning_bench octavo
  "$bin/octavo" example arithmetic build/bench/example >/dev/null
  "$bin/learning_bench" build/bench/example/fp8.yaml --target 1.25 "$@"
}

gemms() {
  steps_to_target \
    --candidate fp8= \
    --candidate "fprop=recipe.rules=[{dgrad: bf16, wgrad: bf16}]" \
    --candidate "dgrad=recipe.rules=[{fprop: bf16, wgrad: bf16}]" \
    --candidate "wgrad=recipe.rules=[{fprop: bf16, dgrad: bf16}]" "$@"
}

case "${1:-}" in
  "") operations; step ;;
  operations) shift; operations "$@" ;;
  step) shift; step "$@" ;;
  steps-to-target) shift; steps_to_target "$@" ;;
  gemms) shift; gemms "$@" ;;
  *) echo "run.sh: unknown name '$1'; write operations, step, steps-to-target or gemms" >&2; exit 2 ;;
esac

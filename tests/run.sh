#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. Ends with "N passed, N failed, N skipped".
#
#   tests/run.sh                    everything
#   tests/run.sh --label unit       one layer: unit, golden, emulation, simulation, endtoend or tidy
#   OCTAVO_GOLDEN=DIR               numbers of independent implementations to compare with (default: ../shared/golden where it
#                                   is, else the small set in tests/golden/data, which is compared with in any case)
#   OCTAVO_JOBS=N                   compile jobs (default: one per core)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

label=()
case "${1:-}" in
  "") ;;
  --label) [ $# -eq 2 ] || { echo "run.sh: --label needs a name" >&2; exit 2; }; label=(-L "^$2\$") ;;
  *) echo "run.sh: unknown argument '$1'; write nothing or --label NAME" >&2; exit 2 ;;
esac
jobs=${OCTAVO_JOBS:-$(nproc)}
export OMP_WAIT_POLICY=passive  # spinning teams of several processes stall one another on few cores

build() {  # build PRESET [TARGET...]
  local preset=$1; shift
  cmake --preset "$preset" >"build/$preset.configure.log" 2>&1 ||
    { tail -n 20 "build/$preset.configure.log" >&2; echo "run.sh: configuring preset $preset failed" >&2; exit 1; }
  cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"} >"build/$preset.build.log" 2>&1 ||
    { grep -E 'error|FAILED' -A 3 "build/$preset.build.log" | head -n 60 >&2
      echo "run.sh: building preset $preset failed; see build/$preset.build.log" >&2; exit 1; }
}

passed=0 failed=0 skipped=0
finish() {  # whatever ended the run, its last line is the count; what stopped it early counts as one failure
  local status=$?
  if [ $status -ne 0 ] && [ $failed -eq 0 ]; then failed=1; fi
  echo "$passed passed, $failed failed, $skipped skipped"
  [ $failed -eq 0 ] || exit 1
}
trap finish EXIT

show_failures() {  # show_failures LOG: the names, then the first complaints of GoogleTest and of sanitizers
  { grep -E '\(Failed\)|\(Timeout\)|Subprocess|SEGFAULT' "$1" | head -n 40
    grep -E -B 2 -A 25 -m 5 'Failure$|(ERROR|WARNING): [A-Z][a-z]+Sanitizer|runtime error: ' "$1" | head -n 150; } || true
}

run_tests() {  # run_tests PRESET [CTEST ARGUMENT...]
  local preset=$1 log="build/$1.test.log" ok=0; shift
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$jobs" "$@" >"$log" 2>&1 || ok=1
  local total bad none
  total=$(sed -n 's/.*tests failed out of \([0-9]*\)$/\1/p' "$log" | tail -n 1)
  bad=$(sed -n 's/.*tests passed, \([0-9]*\) tests failed out of.*/\1/p' "$log" | tail -n 1)
  none=$(grep -cE '\*\*\*Skipped' "$log" || true)
  if [ -z "$total" ]; then
    tail -n 20 "$log" >&2; echo "run.sh: no test ran under preset $preset" >&2
    failed=$((failed + 1)); return
  fi
  passed=$((passed + total - bad - none)) failed=$((failed + bad)) skipped=$((skipped + none))
  echo "$preset: $((total - bad - none)) passed, $bad failed, $none skipped"
  grep -hoE 'skipped: .*' "build/$preset/Testing/Temporary/LastTest.log" | sort | uniq -c | sed 's/^ *\([0-9]*\) /  \1 x /' | head -n 20 || true
  if [ $ok -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1 failed=$((failed + 1)); fi
  [ "$bad" -eq 0 ] || show_failures "$log"
}

mkdir -p build
started=$SECONDS
deploy/install-dependencies.sh
echo "building (preset dev, $jobs jobs)"
build dev
echo "built in $((SECONDS - started)) s; testing"
run_tests dev "${label[@]}"

if [ ${#label[@]} -eq 0 ]; then
  # Sanitizers on what handles raw memory: files, text, kernels, the engine and the emulated device. The core is pure logic
  # and slow to compile; Debian's gRPC, which the trainer links, is not instrumented.
  echo "building (preset asan)"
  build asan base_test proto_test kernels_test engine_test emulation_test device_check fuzz_replay_test
  run_tests asan -R '^unit\.|^emulation\.' -E 'WithFloat32Products$'  # the same addresses, and the slowest test, once more

  # Races of the kernels' threads and of the emulated device's, and locks that are not held.
  if echo 'int main() {}' | clang++ -fopenmp -x c++ - -o /dev/null 2>/dev/null; then
    echo "building (preset tsan)"
    build tsan kernels_test simt_ucontext_test
    run_tests tsan -R '^unit\.|^emulation\.' -E 'WithFloat32Products$|device_check'
    if tests/thread_safety.sh build/dev >build/thread_safety.log 2>&1; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1)); grep -E 'error|warning|thread_safety.sh' -A 3 build/thread_safety.log | head -n 40
    fi
  else
    echo "skipped: races and locks: no clang with OpenMP; apt-get install clang libomp-dev"
    skipped=$((skipped + 1))
  fi
fi

echo "all done in $((SECONDS - started)) s"

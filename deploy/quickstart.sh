#!/usr/bin/env bash
# From a fresh checkout to a trained model: installs what is missing, builds, starts a coordinator and one CPU worker on free
# loopback ports, trains the same small model twice (BF16 and FP8) on a cipher, and compares the two.
#
#   deploy/quickstart.sh            one to four minutes after the build on two cores
#   OCTAVO_QUICKSTART_DIR=DIR       where everything is written (default: build/quickstart, emptied at the start)
#   OCTAVO_JOBS=N                   compile jobs (default: one per core)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -eq 0 ] || { echo "quickstart.sh: takes no arguments; its first lines say what it reads" >&2; exit 2; }
source deploy/local-cluster.sh

folder=${OCTAVO_QUICKSTART_DIR:-$PWD/build/quickstart}
bin=$PWD/build/release/bin
say() { printf '\n== %s\n' "$*"; }
fail() { echo "quickstart.sh: $*" >&2; exit 1; }

say "1/5 packages"
deploy/install-dependencies.sh

say "2/5 build (preset release; the first time takes some minutes)"
mkdir -p build
cmake --preset release >build/release.configure.log 2>&1 ||
  { tail -n 20 build/release.configure.log >&2; fail "configuring failed; see build/release.configure.log"; }
cmake --build --preset release -j "${OCTAVO_JOBS:-$(nproc)}" --target octavod octavo-worker octavo-trainer octavo \
  >build/release.build.log 2>&1 ||
  { grep -E 'error|FAILED' -A 3 build/release.build.log | head -n 40 >&2; fail "building failed; see build/release.build.log"; }
echo "programs are in $bin"
started=$SECONDS

say "3/5 coordinator and worker"
if [ -z "${OCTAVO_QUICKSTART_DIR:-}" ]; then
  rm -rf -- "$folder"
elif [ -e "$folder" ]; then
  fail "$folder exists already; name a new folder in OCTAVO_QUICKSTART_DIR"
fi
start_cluster "$bin" "$folder"
echo "coordinator $OCTAVO_SERVER, metrics http://$METRICS_ADDRESS/metrics"

say "4/5 the same job twice: BF16, then FP8"
"$bin/octavo" example cipher "$folder/example"
train() {  # train FILE [--set ...]: submits it and shows its progress; leaves its id in $id
  id=$("$bin/octavo" submit "$@" -o json | json_field id)
  [ -n "$id" ] || fail "submitting $1 failed"
  "$bin/octavo" watch "$id" || { "$bin/octavo" logs "$id" --tail 20 >&2; fail "job $id did not succeed"; }
}
train "$folder/example/bf16.yaml"
bf16=$id
train "$folder/example/fp8.yaml" --set "stages[0].divergence.baseline_job=$bf16"
fp8=$id

say "5/5 result"
"$bin/octavo" compare "$bf16" "$fp8"
report=$("$bin/octavo" show "$fp8" -o json)
scrape() {  # what Prometheus would read, without a tool for it
  exec 3<>"/dev/tcp/${METRICS_ADDRESS/://}"
  printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
  cat <&3
}
series=$(scrape | grep -c '^octavo_') || true
cat <<TEXT

checkpoint       $(json_field checkpoint_folder <<<"$report")
exported model   $(json_field export_folder <<<"$report")
metrics          $series series at http://$METRICS_ADDRESS/metrics while this ran
everything       $folder
took             $((SECONDS - started)) s after the build

On a CPU, FP8 is emulated exactly: the numbers are those of the recipe, the speed is not. Gains in speed and memory are a
matter of GPUs.
TEXT

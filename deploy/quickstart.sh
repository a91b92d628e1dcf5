#!/usr/bin/env bash
# From a fresh checkout to a trained model: installs what is missing, builds, starts a coordinator and one CPU worker on free
# loopback ports, trains the same small model twice (BF16 and FP8) on synthetic arithmetic, and compares the two.
#
#   deploy/quickstart.sh            about five minutes after the build on two cores
#   OCTAVO_QUICKSTART_DIR=DIR       where everything is written (default: build/quickstart); emptied at the start
#   OCTAVO_JOBS=N                   compile jobs (default: one per core)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -eq 0 ] || { echo "quickstart.sh: takes no arguments; see its first lines" >&2; exit 2; }

folder=${OCTAVO_QUICKSTART_DIR:-$PWD/build/quickstart}
bin=$PWD/build/release/bin
say() { printf '\n== %s\n' "$*"; }
fail() { echo "quickstart.sh: $*" >&2; exit 1; }

coordinator='' worker=''
stop() {
  trap - EXIT INT TERM
  # The worker first: it stops its trainer and leaves no child behind.
  for process in $worker $coordinator; do kill -TERM "$process" 2>/dev/null || true; done
  for process in $worker $coordinator; do
    for _ in $(seq 150); do kill -0 "$process" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
}
trap stop EXIT
trap 'stop; exit 130' INT TERM

say "1/5 packages"
deploy/install-dependencies.sh

say "2/5 build (preset release; the first time takes some minutes)"
mkdir -p build
cmake --preset release >build/release.configure.log 2>&1 ||
  { tail -n 20 build/release.configure.log >&2; fail "configuring failed; see build/release.configure.log"; }
cmake --build --preset release -j "${OCTAVO_JOBS:-$(nproc)}" --target octavod octavo-worker octavo-trainer octavo \
  >build/release.build.log 2>&1 ||
  { grep -E 'error|FAILED' -A 3 build/release.build.log | head -n 40 >&2; fail "the build failed; see build/release.build.log"; }
echo "built $bin"
started=$SECONDS

say "3/5 coordinator and worker"
case "$folder" in
  */quickstart*) rm -rf -- "$folder" ;;
  *) [ ! -e "$folder" ] || fail "$folder exists; name a new folder in OCTAVO_QUICKSTART_DIR" ;;
esac
mkdir -p "$folder"
"$bin/octavod" --data-dir "$folder/coordinator" --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 2>"$folder/octavod.log" &
coordinator=$!
addresses=$folder/coordinator/addresses.json
for _ in $(seq 100); do
  [ -s "$addresses" ] && break
  kill -0 "$coordinator" 2>/dev/null || { tail -n 5 "$folder/octavod.log" >&2; fail "octavod did not start"; }
  sleep 0.1
done
[ -s "$addresses" ] || fail "octavod did not say where it listens within 10 s; see $folder/octavod.log"
address_of() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" "$addresses"; }
OCTAVO_SERVER=$(address_of grpc)
metrics=$(address_of metrics)
export OCTAVO_SERVER
"$bin/octavo-worker" --server "$OCTAVO_SERVER" --work-dir "$folder/worker" --worker-id quickstart 2>"$folder/worker.log" &
worker=$!
echo "coordinator $OCTAVO_SERVER, metrics http://$metrics/metrics"

say "4/5 training the same job twice: BF16, then FP8"
"$bin/octavo" example arithmetic "$folder/example"
submit() {  # submit FILE [--set ...]: trains it, showing progress; its id in $id
  id=$("$bin/octavo" submit "$@" -o json | sed -n 's/^ *"id": *"\(job-[a-z0-9]*\)".*/\1/p' | head -n 1)
  [ -n "$id" ] || fail "submitting $1 failed"
  "$bin/octavo" watch "$id" || { "$bin/octavo" logs "$id" | tail -n 20 >&2; fail "job $id did not succeed"; }
}
submit "$folder/example/bf16.yaml"
bf16=$id
submit "$folder/example/fp8.yaml" --set "stages[0].divergence.baseline_job=$bf16"
fp8=$id

say "5/5 result"
"$bin/octavo" compare "$bf16" "$fp8"
exported=$("$bin/octavo" show "$fp8" -o json | sed -n 's/^ *"export_folder": *"\([^"]*\)".*/\1/p' | head -n 1)
checkpoint=$("$bin/octavo" show "$fp8" -o json | sed -n 's/^ *"checkpoint_folder": *"\([^"]*\)".*/\1/p' | head -n 1)
cat <<TEXT

checkpoint       $checkpoint
exported model   $exported
metrics          http://$metrics/metrics (while the coordinator runs)
everything       $folder
took             $((SECONDS - started)) s after the build

On a CPU, FP8 is emulated exactly: the numbers are those of the recipe, the speed is not. Gains in speed and memory are a matter of GPUs.
TEXT

#!/usr/bin/env bash
# A real model through the whole system: SmolLM2-135M, continued on manual pages, in BF16, in FP8, and in FP8 with the first two and
# the last layer in BF16. Not part of tests/run.sh: it takes about half an hour on two cores.
#
#   tests/endtoend/real_model.sh [BIN]    BIN: folder of the built programs (default: build/release/bin)
#   OCTAVO_SMOLLM2=DIR                    the model folder (default: made by ../shared/tools/make-smollm2.sh if that is there)
#   OCTAVO_REAL_STEPS=N                   optimizer steps of each run (default 24, at least 20)
#   OCTAVO_REAL_DIR=DIR                   where everything is written (default: build/real-model, emptied at the start)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source deploy/local-cluster.sh

bin=$(cd "${1:-build/release/bin}" 2>/dev/null && pwd) || { echo "real_model.sh: no programs in ${1:-build/release/bin}; build preset release" >&2; exit 1; }
steps=${OCTAVO_REAL_STEPS:-24}
folder=${OCTAVO_REAL_DIR:-$PWD/build/real-model}
model=${OCTAVO_SMOLLM2:-$PWD/build/smollm2}
skip() { echo "skipped: $*"; exit 0; }
fail() { echo "real_model.sh: $*" >&2; exit 1; }

if [ ! -f "$model/model.safetensors" ]; then
  [ -z "${OCTAVO_SMOLLM2:-}" ] || skip "no model.safetensors in $model"
  maker=../shared/tools/make-smollm2.sh
  [ -x "$maker" ] || skip "no model folder: set OCTAVO_SMOLLM2 to a SmolLM2-135M folder"
  "$maker" "$model" || skip "the model folder could not be made"
fi
command -v nroff >/dev/null || skip "nroff is not installed (package groff-base), so manual pages cannot be rendered"
[ -d /usr/share/man/man1 ] || skip "this machine has no manual pages"

[ -n "${OCTAVO_REAL_DIR:-}" ] || rm -rf -- "$folder"
mkdir -p "$folder"

# English pages of sections 1 and 8, one document each, a form feed between them.
corpus=$folder/manual-pages.txt
find /usr/share/man/man1 /usr/share/man/man8 -name '*.gz' -size +3k | sort | head -n 400 | while read -r page; do
  zcat "$page" | GROFF_NO_SGR=1 nroff -man -Tascii 2>/dev/null | sed 's/.\x08//g' | cat -s
  printf '\f'
done >"$corpus"
[ "$(wc -c <"$corpus")" -gt 1000000 ] || skip "this machine's manual pages hold less than 1 MB of text"
echo "corpus: $(wc -c <"$corpus") bytes of manual pages"

start_cluster "$bin" "$folder"

job_file() {  # job_file NAME MODEL RECIPE-YAML STEPS
  cat >"$folder/$1.yaml" <<YAML
name: smollm2-$1
output_folder: $folder/jobs
stages:
  - kind: cpt
    model: {folder: $2}
    data: {files: [$corpus], document_separator: "\f", sequence_length: 512, isolate_documents: true}
    recipe: $3
    optimizer: {learning_rate: 1e-4, min_learning_rate: 1e-5, weight_decay: 0.1}
    schedule: {kind: wsd, warmup_steps: $(($4 / 4))}
    batch: {micro_batch: 2}
    steps: $4
    seed: 1
    divergence: {probe_every_steps: 4}
    evaluation: {holdout_tokens: 6144}
YAML
}
train() {  # train NAME [--set ...]: leaves the id in $id
  id=$("$bin/octavo" submit "$folder/$1.yaml" "${@:2}" -o json | json_field id)
  [ -n "$id" ] || fail "submitting $1 failed"
  "$bin/octavo" watch "$id" || { "$bin/octavo" logs "$id" --tail 20 >&2; fail "job $1 ($id) did not succeed"; }
}
field() { "$bin/octavo" show "$1" -o json | json_field "$2"; }
# Mean training loss of four steps from the given one on.
mean_loss() {
  "$bin/octavo" metrics "$1" --name train/loss -o json | tr -d '\n ' | grep -oE '"step":"?[0-9]+"?,"value":[0-9.e-]+' |
    sed 's/"step":"\{0,1\}\([0-9]*\)"\{0,1\},"value":/\1 /' | awk -v from="$2" '$1 >= from && $1 < from + 4 { sum += $2; n++ } END { print sum / n }'
}

job_file bf16 "$model" '{name: bf16}' "$steps"
job_file fp8 "$model" '{name: fp8}' "$steps"
job_file fp8-kept "$model" '{name: fp8, keep_bf16: ["model.layers.0.*", "model.layers.1.*", "model.layers.29.*"]}' "$steps"
train bf16; bf16=$id
train fp8 --set "stages[0].divergence.baseline_job=$bf16"; fp8=$id
train fp8-kept --set "stages[0].divergence.baseline_job=$bf16"; kept=$id

for pair in "fp8 $fp8" "fp8-kept $kept"; do
  set -- $pair
  printf '\n== BF16 and %s\n' "$1"
  "$bin/octavo" compare "$bf16" "$2"
  "$bin/octavo" metrics "$2" --name divergence/probe_ratio
done

printf '\n== checks\n'
first=$(mean_loss "$fp8" 1) last=$(mean_loss "$fp8" $((steps - 3)))
echo "training loss, mean of the first and of the last four steps: $first, $last"
awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < a) }' || fail "the training loss did not fall"

# The exported folder is the same model: its loss before any step equals the loss after training.
exported=$(field "$fp8" export_folder)
job_file reload "$exported" '{name: bf16}' 1
train reload; reload=$id
before=$(field "$fp8" loss_bf16) after=$(field "$reload" initial_loss_bf16)
echo "held-out BF16 loss after training: $before; of the exported folder: $after"
awk -v a="$before" -v b="$after" 'BEGIN { d = a - b; exit !(d < 1e-5 && d > -1e-5) }' || fail "the export does not reload to the same loss"
echo "real model: all checks passed"

#!/usr/bin/env bash
# On a machine with an H100 or H200: builds the CUDA plug-in and compares it with float64. Takes a few minutes; writes
# device.json to $OUT (default: build/device).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${OUT:-build/device}
mkdir -p "$out" build
command -v nvidia-smi >/dev/null || { echo "check.sh: this machine has no NVIDIA driver" >&2; exit 1; }
deploy/install-dependencies.sh || echo "check.sh: going on with what is installed"
cmake --preset release -DOCTAVO_CUDA=ON >"$out/configure.log" 2>&1 || { tail -n 20 "$out/configure.log" >&2; exit 1; }
cmake --build --preset release --target octavo_cuda device_check >"$out/build.log" 2>&1 || { tail -n 40 "$out/build.log" >&2; exit 1; }
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
build/release/bin/device_check cuda | tee "$out/device.json"

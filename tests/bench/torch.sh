#!/usr/bin/env bash
# Times the step of step_bench in PyTorch with Hugging Face's model code: eager and compiled, FP32 and BF16 autocast.
#
#   tests/bench/run.sh step --model smollm2-135m ...       writes the model's config.json, and is what to compare with
#   tests/bench/torch.sh [--model smollm2-135m] [FLAG...]  --micro-batch 4 --sequence 1024 --steps 3 --modes eager --precisions fp32
#   OCTAVO_TORCH_VENV=DIR                                  where PyTorch is installed (default: build/torch-venv; delete it afterwards)
#
# Needs python3 with venv, gcc and PyPI. PyPI's only x86-64 build of PyTorch wants 2.5 GB of CUDA libraries, of which a CPU runs
# nothing: 0.7 GB are downloaded, and the rest are replaced by empty libraries of the same names, whose functions are never called.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

model=smollm2-135m
if [ "${1:-}" = --model ]; then model=${2:?torch.sh: --model needs a name}; shift 2; fi
config=build/bench/$model/config.json
[ -f "$config" ] || { echo "torch.sh: no $config; run tests/bench/run.sh step --model $model first" >&2; exit 2; }

venv=${OCTAVO_TORCH_VENV:-build/torch-venv}
if [ ! -f "$venv/complete" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --no-deps torch nvidia-cuda-runtime nvidia-cuda-cupti nvidia-cufile nvidia-nvshmem-cu13
  "$venv/bin/pip" install -q transformers numpy sympy networkx jinja2 fsspec filelock typing_extensions setuptools
  lib=$(echo "$venv"/lib/python3*/site-packages/torch/lib)
  for name in libcudnn.so.9 libcusparse.so.12 libcufft.so.12 libcusparseLt.so.0 libnccl.so.2 libcublas.so.13 libcublasLt.so.13 \
              libnvrtc.so.13 libcusolver.so.12; do
    echo | gcc -shared -x c - -o "$lib/$name" -Wl,-soname,"$name"
  done
  touch "$venv/complete"
fi
OCTAVO_TORCH_CPU_ONLY=1 OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} "$venv/bin/python" tests/bench/torch_step.py --config "$config" "$@"

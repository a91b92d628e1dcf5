"""Times a training step of Hugging Face's model in PyTorch; prints figures as step_bench does. Run by torch.sh."""
import os
import sys

if os.environ.get("OCTAVO_TORCH_CPU_ONLY"):  # see torch.sh: CUDA's libraries are stand-ins, whose functions must not be bound at once
    sys.setdlopenflags(os.RTLD_LAZY)

import argparse
import json
import resource
import statistics
import time

import torch
import transformers


def processor():
    model = next((line.split(": ", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    return f"{model}, {os.cpu_count()} cores"


def figure(name, value, unit, baseline=None):
    print(json.dumps({
        "name": name, "value": value, "unit": unit,
        "baseline": baseline and baseline[0], "baseline_value": baseline and baseline[1],
        "ratio": baseline and value / baseline[1],
        "command": " ".join(["torch.sh"] + sys.argv[1:]), "cpu": processor()}), flush=True)


def measure(arguments, config, precision, mode):
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").float().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    run = torch.compile(model) if mode == "compile" else model
    wall, used = [], []
    for _ in range(arguments.steps + 1):
        ids = torch.randint(0, 256, (arguments.micro_batch, arguments.sequence))
        start, start_used = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = run(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        wall.append(time.perf_counter() - start)
        used.append(time.process_time() - start_used)
    return statistics.median(wall[1:]), min(used[1:])  # the first one warms up


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True, help="config.json of a model")
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=3, help="that count, after one that does not")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--modes", nargs="+", default=["eager", "compile"], choices=["eager", "compile"])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    config = transformers.AutoConfig.from_pretrained(os.path.dirname(arguments.config))
    config.use_cache = False
    tokens = arguments.micro_batch * arguments.sequence
    shape = f"torch-{torch.__version__}/{os.path.basename(os.path.dirname(arguments.config))}/{arguments.micro_batch}x{arguments.sequence}"
    first = None
    for precision in arguments.precisions:
        for mode in arguments.modes:
            seconds, used = measure(arguments, config, precision, mode)
            name = f"{shape}/{precision}-{mode}"
            first = first or (f"{precision}-{mode}", tokens / seconds, used)
            figure(name + "/step_seconds", seconds, "s")
            figure(name + "/step_processor_seconds", used, "s of processor time", (first[0], first[2]))
            figure(name + "/tokens_per_second", tokens / seconds, "tokens/s", (first[0], first[1]))
    figure(shape + "/peak_memory_of_all", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "bytes")


main()

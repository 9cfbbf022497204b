#!/bin/sh
# The commands behind docs/evidence/runs, from the repository's root. Expects `vllm`, `llama-server` and
# `llama-server-vulkan` on PATH, ~/sglang/bin/python3 with SGLang, and the models at ~/m/smol and ~/m/draft.
set -x
presets=docs/evidence/presets
sweep() { name=$1; shift; DRAFTDIAL_RUNS=out/$name python3 -m probes sweep "$@" --json > out/$name.jsonl 2> out/$name.err; }
mkdir -p out
nvidia-smi --query-gpu=timestamp,memory.total,memory.used,memory.free,memory.reserved,utilization.gpu,power.draw,temperature.gpu,clocks.sm \
  --format=csv,nounits -lms 1000 > out/smi.csv &
watch=$!
python3 -m probes doctor > out/doctor.txt
python3 benchmarks/gpu_poll.py --json --seconds 20 > out/poll.json
sweep vllm-slots $presets/vllm-slots.yaml --depths 0 &
sweep vllm-kv $presets/vllm-kv.yaml --depths 0
wait %2
sweep vllm-ngram $presets/vllm-ngram.yaml --depths 0-5
sweep vllm-ngram-graphs $presets/vllm-ngram-graphs.yaml --depths 0-5
sweep vllm-draft $presets/vllm-draft.yaml --depths 1,3,5 --prompts 2
sweep llamacpp-cuda-draft $presets/llamacpp-draft.yaml --depths 0-5
sweep llamacpp-cuda-ngram $presets/llamacpp-ngram.yaml --depths 0,2,3,4,5,8
sweep llamacpp-vulkan-draft $presets/llamacpp-vulkan-draft.yaml --depths 0-5
sweep sglang-ngram $presets/sglang-ngram.yaml --depths 0-5
kill $watch
for run in out/*/*/; do python3 -m probes read "$run/server.log"; done
python3 benchmarks/run_tables.py out/*/*/ --smi out/smi.csv

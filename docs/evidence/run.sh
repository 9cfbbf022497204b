#!/bin/sh
# The commands behind docs/evidence/runs, from the repository's root. Expects `vllm`, `llama-server` and
# `llama-server-vulkan` on PATH, ~/sglang/bin/python3 with SGLang, and the models at ~/m/smol and ~/m/draft.
set -x
presets=docs/evidence/presets
sweep() { name=$1; shift; DRAFTDIAL_RUNS=out/$name python3 -m probes sweep "$@" --json > out/$name.jsonl 2> out/$name.err; }
ceiling() { name=$1; shift; DRAFTDIAL_RUNS=out/$name python3 -m probes ceiling "$@" --json > out/$name.jsonl 2> out/$name.err; }
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
# Two hours later, on another machine of the same kind.
sweep sglang-ngram-chunks $presets/sglang-ngram.yaml --depths 0,2,4 --prompts 3
sweep sglang-standalone $presets/sglang-standalone.yaml --depths 0,1,3 --prompts 3
ceiling sglang-slots $presets/sglang-slots.yaml & slots=$!
ceiling sglang-pool $presets/sglang-pool.yaml & pool=$!
ceiling sglang-default $presets/sglang-default.yaml --streams 60 --max-tokens 400
wait $slots $pool
sweep sglang-standalone-oom $presets/sglang-standalone-oom.yaml --depths 1 --prompts 1
ceiling sglang-estimate-tight $presets/sglang-estimate.yaml --streams 40 --max-tokens 1500 --set schedule_conservativeness=1.4 --no-experiments &
ceiling sglang-estimate $presets/sglang-estimate.yaml --streams 40 --max-tokens 1500
wait $!
kill $watch
for run in out/*/*/; do python3 -m probes read "$run/server.log"; done
python3 benchmarks/run_tables.py out/*/*/ --smi out/smi.csv

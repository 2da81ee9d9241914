#!/usr/bin/env bash
# For a machine with an NVIDIA GPU: trains a street model, runs the GPU tests, measures the bundled models on the GPU.
# One JSON object on standard output, with the outcome of every step; what the steps say goes to LOGS.
#
#   fovea/bench/gpu_check.sh [MODEL] [TRAINING_MINUTES] [DIAL]      from the repository's root; default: edge 5 0.1
#
# DIAL scales how many street frames are drawn for the training, see `python -m cloud.pretrain --help`.
# PYTHON names the interpreter (default .venv/bin/python, else python3), LOGS the folder (default out/gpu_check).
# Exit code: 0 all steps passed, 1 a step failed, 3 no GPU here.
set -u
model=${1:-edge}
minutes=${2:-5}
dial=${3:-0.1}
logs=${LOGS:-out/gpu_check}
python=${PYTHON:-.venv/bin/python}
[ -x "$python" ] || python=python3

no_gpu() {
  echo "gpu_check: $1; nothing was run" >&2
  exit 3
}
command -v nvidia-smi >/dev/null 2>&1 || no_gpu "no NVIDIA GPU here (nvidia-smi is not installed)"
gpu=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
[ -n "$gpu" ] || no_gpu "no NVIDIA GPU here (nvidia-smi finds none)"
"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null \
  || no_gpu "there is a GPU ($gpu), but torch of $python cannot use it"

mkdir -p "$logs"
outcomes=$logs/outcomes.tsv
: >"$outcomes"
failed=0

# step NAME COMMAND...: runs it, keeps its words, notes its exit code and seconds.
step() {
  local name=$1 begun code
  shift
  begun=$(date +%s)
  echo "gpu_check: $name ..." >&2
  "$@" >"$logs/$name.log" 2>&1
  code=$?
  printf '%s\t%s\t%s\n' "$name" "$code" "$(($(date +%s) - begun))" >>"$outcomes"
  if [ "$code" -ne 0 ]; then
    failed=1
    echo "gpu_check: $name failed with exit code $code, see $logs/$name.log" >&2
  fi
}

step training "$python" -m cloud.pretrain --model "$model" --minutes "$minutes" --dial "$dial" --device 0 \
  --out "$logs/training"
step tests "$python" -m pytest -q tests/gpu
step serving "$python" -c 'from fovea.cli.main import main; main()' bench zoo --device cuda:0 --workers 1 \
  --frames 1 --clips 8 --json "$logs/serving.json"

GPU=$gpu LOGS=$logs MODEL=$model "$python" - <<'END'
import json
import os
from pathlib import Path

logs = Path(os.environ["LOGS"])


def read(name: str) -> object:
    path = logs / name
    return json.loads(path.read_text()) if path.exists() else None


rows = [line.split("\t") for line in (logs / "outcomes.tsv").read_text().splitlines()]
steps = {
    name: {"passed": code == "0", "exit_code": int(code), "seconds": int(seconds), "log": f"{logs}/{name}.log"}
    for name, code, seconds in rows
}
steps["training"] |= {"model": os.environ["MODEL"], "facts": read("training/facts.json")}
steps["serving"] |= {"result": read("serving.json")}
print(json.dumps({"name": "gpu_check", "gpu": os.environ["GPU"], "steps": steps}, indent=2))
END
exit "$failed"

#!/usr/bin/env bash
# Resolves each extra of pyproject.toml into a complete, hashed lock (all of Linux, Python 3.11 to 3.13).
# Run it after changing a dependency; `make setup` and the images install from the locks with --no-deps.
set -euo pipefail
cd "$(dirname "$0")/../.."
uv=${UV:-.venv/bin/uv}
for extra in agent serve gpu demo cloud postgres s3 train ray dev; do
    "$uv" pip compile --quiet pyproject.toml --extra "$extra" --universal --python-version 3.11 \
        --generate-hashes --no-emit-index-url --no-header --no-annotate "$@" \
        --output-file "deploy/locks/$extra.txt"
    grep -c '==' "deploy/locks/$extra.txt" | sed "s/^/$extra: /;s/\$/ packages/"
done

#!/usr/bin/env bash
# The tests against the real schedulers, each release in an environment of its own.
#
#   scripts/engine_tests.sh [NAME...]     default: vllm032 rbln012 vllm033
#
# KVGATE_ENGINES is the folder of the environments (default: .engines); they are made if need be.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${KVGATE_ENGINES:-.engines}
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(vllm032 rbln012 vllm033)
for name in "${names[@]}"; do
    scripts/make_engine_env.sh "$name" "$folder/$name"
    only=()
    [ "$name" != rbln012 ] || only=(-k "not [vllm")  # vLLM 0.30 is there for vllm-rbln
    "$folder/$name/bin/python" -m pytest -m engine tests/engine "${only[@]}" --timeout 1200 -p no:warnings
done

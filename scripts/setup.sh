#!/usr/bin/env bash
# Installs what building, testing and the scripts need, and nothing that is there already. Every make target calls it; a
# call with nothing to do takes a moment. It writes env.sh beside the downloads, which make and the scripts read. Sizes are
# printed before anything is downloaded.
#
#   SHARDMARK_DEPS    where downloads go (default .deps)
#   Torch_DIR         <torch>/share/cmake/Torch of the LibTorch to build with; else the active python's torch, else PyPI's
#   SHARDMARK_PYTHON  a Python with h5py, matplotlib, numpy, pandas and pytest to use as it is; else one is set up
#   CXX, MPI_HOME, HDF5_ROOT, CUDA_HOME, CMAKE_PREFIX_PATH   other installations than those of the path
#
# Where neither CUDA_HOME nor the path has an nvcc, PyPI's is installed with the Python packages.
# As root on Debian it installs packages. Without root or network it names everything that is missing, and the package or
# variable that supplies it, at once. Exit codes: 0 ready, 5 something is missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
mkdir -p "${SHARDMARK_DEPS:-$root/.deps}"
deps=$(cd "${SHARDMARK_DEPS:-$root/.deps}" && pwd)
venv=$deps/venv
asked_torch=${Torch_DIR:-}
asked_python=${SHARDMARK_PYTHON:-}
# A shell that has read env.sh asks for nothing of its own.
[[ $asked_torch != "$venv"/* ]] || asked_torch=
[[ $asked_python != "$venv"/* ]] || asked_python=

source "$here/setup/messages.sh"

# Two make calls at once must not install into one folder.
exec 9>"$deps/.lock"
if command -v flock >/dev/null; then
  flock 9
fi

source "$here/setup/tools.sh"
source "$here/setup/cuda.sh"
source "$here/setup/python.sh"

stamp_text=$(stamp_of_everything)
if [[ -e $deps/env.sh && $(cat "$deps/stamp" 2>/dev/null) == "$stamp_text" ]] && still_there; then
  exit 0
fi
rm -f "$deps/stamp"

find_missing_tools
if ((${#absent[@]} > 0)) && [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  install_packages
  find_missing_tools
fi
report_missing_tools
choose_torch
choose_python
stop_if_missing
make_environment
stop_if_missing
choose_cuda "$venv/lib/python3"*/site-packages "$torch_dir/../../../.." || say "no nvcc (CUDA_HOME, path): device code is not built"

cat >"$deps/env.sh.new" <<END
export SHARDMARK_DEPS='$deps'
export SHARDMARK_PYTHON='$python'
export SHARDMARK_CMAKE_FLAGS='-DSM_PYTHON_TESTS=ON'
export Torch_DIR='$torch_dir'
END
[[ -z $cuda_home || $cuda_home == "${CUDA_HOME:-}" ]] || echo "export CUDA_HOME='$cuda_home'" >>"$deps/env.sh.new"
mv "$deps/env.sh.new" "$deps/env.sh"
stamp_of_everything >"$deps/stamp"
say "ready: LibTorch $torch_dir, Python $python"

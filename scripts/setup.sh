#!/usr/bin/env bash
# Installs what building and testing need, and nothing that is there already. Idempotent: a second call takes a second.
#   Torch_DIR        <torch>/share/cmake/Torch of a LibTorch to use instead of a download
#   an active python with torch is used the same way
#   MPI_HOME, HDF5_ROOT, CUDA_HOME   other installations than the system's
#   SHARDMARK_DEPS   where downloads go (default .deps)
# Without root or network it names everything that is missing and what supplies it, and returns 5.
set -euo pipefail
cd "$(dirname "$0")/.."

deps=${SHARDMARK_DEPS:-.deps}
mkdir -p "$deps"
deps=$(cd "$deps" && pwd)
venv=$deps/venv
torch_pin=torch==2.14.1
python_pins="h5py==3.16.0 numpy==2.4.6 pandas==3.1.1 matplotlib==3.11.2 pytest==9.2.0"
missing=()

say() { printf 'setup: %s\n' "$*" >&2; }
need() { missing+=("$1: $2"); }
finish_if_missing() {
  if [ ${#missing[@]} -gt 0 ]; then
    say "cannot go on; missing:"
    printf '  - %s\n' "${missing[@]}" >&2
    exit 5
  fi
}

# --- Debian packages -----------------------------------------------------------------------------------------------------
packages() {
  echo g++ make git cmake ninja-build libspdlog-dev libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libgtest-dev \
    libbenchmark-dev python3 python3-venv procps
  [ -n "${MPI_HOME:-}" ] || echo libopenmpi-dev openmpi-bin
  [ -n "${HDF5_ROOT:-}" ] || echo libhdf5-dev hdf5-tools
}

absent=()
if command -v dpkg-query > /dev/null; then
  for package in $(packages); do
    dpkg-query -W -f='${Status}' "$package" 2> /dev/null | grep -q 'ok installed' || absent+=("$package")
  done
fi
if [ ${#absent[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    say "installing Debian packages (about 150 MB to download at the most): ${absent[*]}"
    export DEBIAN_FRONTEND=noninteractive
    if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${absent[@]}"; } > "$deps/apt.log" 2>&1; then
      tail -n 5 "$deps/apt.log" >&2
      need "Debian packages ${absent[*]}" "apt-get could not install them (log: $deps/apt.log)"
    fi
  elif command -v apt-get > /dev/null; then
    say "not root: Debian packages not installed: ${absent[*]} (modules may supply them)"
  fi
fi

# --- Tools, wherever they come from --------------------------------------------------------------------------------------
version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
compiler=${CXX:-g++}
if command -v "$compiler" > /dev/null; then
  version_at_least "$("$compiler" -dumpfullversion -dumpversion)" 12 || need "$compiler" "version 12 or newer is needed: set CXX, or load a module"
else
  need "C++ compiler" "package g++, a module, or CXX"
fi
if command -v cmake > /dev/null; then
  version_at_least "$(cmake --version | awk 'NR == 1 {print $3}')" 3.24 || need cmake "version 3.24 or newer is needed: pip install cmake, or a module"
else
  need cmake "package cmake, pip install cmake, or a module"
fi
command -v ninja > /dev/null || need ninja "package ninja-build, pip install ninja, or a module"
if [ -n "${MPI_HOME:-}" ]; then
  [ -x "$MPI_HOME/bin/mpirun" ] || need MPI "MPI_HOME = $MPI_HOME has no bin/mpirun"
else
  command -v mpirun > /dev/null || need MPI "package libopenmpi-dev, a module, or MPI_HOME"
fi
if [ -n "${HDF5_ROOT:-}" ]; then
  [ -e "$HDF5_ROOT/include/hdf5.h" ] || need HDF5 "HDF5_ROOT = $HDF5_ROOT has no include/hdf5.h"
elif ! ls /usr/include/hdf5/*/hdf5.h /usr/include/hdf5.h > /dev/null 2>&1 && ! command -v h5cc h5pcc > /dev/null; then
  need HDF5 "package libhdf5-dev, a module, or HDF5_ROOT"
fi
finish_if_missing

# --- Python and LibTorch -------------------------------------------------------------------------------------------------
torch_of() { "$1" -c 'import os, torch; print(os.path.join(os.path.dirname(torch.__file__), "share", "cmake", "Torch"))' 2> /dev/null; }
torch_dir=${Torch_DIR:-}
if [ -n "$torch_dir" ] && [ ! -e "$torch_dir/TorchConfig.cmake" ]; then
  need LibTorch "Torch_DIR = $torch_dir has no TorchConfig.cmake"
  finish_if_missing
fi
stamp_text="$(cksum < "scripts/setup.sh") ${torch_dir:-$torch_pin}"
if [ "$(cat "$deps/stamp" 2> /dev/null)" = "$stamp_text" ] && [ -e "$deps/env.sh" ]; then
  exit 0
fi
rm -f "$deps/stamp"
base_python=$(command -v python3 || command -v python || true)
[ -n "$base_python" ] || { need python3 "package python3, or a module"; finish_if_missing; }
if [ -z "$torch_dir" ]; then
  active=$(command -v python || command -v python3)
  torch_dir=$(torch_of "$active" || true)
  [ -z "$torch_dir" ] || say "using the active python's torch: $torch_dir"
fi
# A half-made environment (an interrupted call) is made anew.
if ! "$venv/bin/python" -m pip --version > /dev/null 2>&1; then
  rm -rf "$venv"
  if ! "$base_python" -m venv "$venv" > "$deps/venv.log" 2>&1; then
    need "Python environment" "python3 -m venv failed: package python3-venv (log: $deps/venv.log)"
    finish_if_missing
  fi
fi
wanted=$python_pins
if [ -z "$torch_dir" ]; then
  wanted="$torch_pin $python_pins"
  say "downloading $torch_pin with the CUDA libraries it brings: about 2.5 GB, 4.7 GB on disk, into $venv"
else
  say "downloading h5py, pandas, matplotlib, pytest: about 60 MB into $venv"
fi
if ! "$venv/bin/python" -m pip install -q $wanted > "$deps/pip.log" 2>&1; then
  tail -n 3 "$deps/pip.log" >&2
  need "Python packages $wanted" "pip could not install them (log: $deps/pip.log); Torch_DIR supplies LibTorch"
  finish_if_missing
fi
[ -n "$torch_dir" ] || torch_dir=$(torch_of "$venv/bin/python" || true)
[ -n "$torch_dir" ] || { need LibTorch "$venv holds no working torch: remove it and try again, or set Torch_DIR"; finish_if_missing; }
cat > "$deps/env.sh" <<END
export Torch_DIR='$torch_dir'
export SHARDMARK_DEPS='$deps'
export SHARDMARK_PYTHON='$venv/bin/python'
END
printf '%s' "$stamp_text" > "$deps/stamp"
say "done: LibTorch at $torch_dir"

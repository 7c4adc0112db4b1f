#!/usr/bin/env bash
# Set-up from a bundle that `make bundle` packed: what `make build BUNDLE=FILE.tar` calls instead of setup.sh. Needs neither
# a network nor root. Unpacks, builds the small libraries into $SHARDMARK_DEPS/prefix with the bundled cmake and ninja, and
# writes env.sh, which make and the scripts read. A call with nothing to do takes a moment.
#   scripts/bundle/use.sh FILE.tar
# The bundle does not carry: a compiler (CXX), LibTorch (Torch_DIR, else the active python's), a CUDA toolkit (CUDA_HOME, the
# path, or PyPI's nvcc beside torch; without one device code is not built). MPI is that of MPI_HOME, else that of the path,
# else the bundled Open MPI. JOBS: how many compile at once (default: all cores).
# Exit codes: 0 ready; 2 wrong call; 5 something is missing, all of it named at once.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
root=$(dirname "$here")
speaker=bundle
source "$here/setup/messages.sh"
if [[ $# != 1 || ! -f $1 ]]; then
  say "usage: scripts/bundle/use.sh FILE.tar (or make build BUNDLE=FILE.tar)${1:+; there is no file $1}"
  exit 2
fi
bundle=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
mkdir -p "${SHARDMARK_DEPS:-$root/.deps}"
deps=$(cd "${SHARDMARK_DEPS:-$root/.deps}" && pwd)
venv=$deps/venv
prefix=$deps/prefix
parts=$deps/bundle
asked_torch=${Torch_DIR:-}
asked_python=${SHARDMARK_PYTHON:-}
jobs=${JOBS:-$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)}
min_glibc=2.28 # what the bundled cmake and Open MPI were built for

exec 9>"$deps/.lock"
if command -v flock >/dev/null; then
  flock 9
fi
source "$here/setup/tools.sh"
source "$here/setup/cuda.sh"
source "$here/setup/python.sh"
source "$here/bundle/libraries.sh"

# A shell that has read env.sh asks for nothing of its own.
[[ ${MPI_HOME:-} != "$prefix"/* ]] || unset MPI_HOME
[[ ${HDF5_ROOT:-} != "$prefix" ]] || unset HDF5_ROOT

# A Python for small scripts; the tests in Python are built in only where it has their packages.
choose_any_python() {
  local candidate
  for candidate in "$asked_python" "$venv/bin/python" python3 python; do
    if [[ -n $candidate ]] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then
      python=$(command -v "$candidate")
      return
    fi
  done
  need "Python 3.8 or newer: a module, or SHARDMARK_PYTHON"
}

python_tests() {
  "$python" -c 'import h5py, matplotlib, numpy, pandas, pytest' 2>/dev/null && echo ON || echo OFF
}

choose_mpi() {
  mpi_home=
  if [[ -n ${MPI_HOME:-} ]]; then
    [[ -x $MPI_HOME/bin/mpirun || -x $MPI_HOME/bin/mpiexec ]] ||
      need "MPI: MPI_HOME = $MPI_HOME has no bin/mpirun; name the folder of an MPI or unset it to use the bundled one"
    mpi_home=$MPI_HOME
  elif ! command -v mpicc >/dev/null || ! command -v mpirun >/dev/null; then
    mpi_home=$prefix/openmpi
  fi
}

find_what_the_bundle_lacks() {
  local version program
  for program in tar xz sha256sum awk; do
    command -v "$program" >/dev/null || need "$program: a package or module of that name"
  done
  if ! command -v "$(compiler)" >/dev/null; then
    need "C++ compiler $(compiler): a module, or CXX"
  else
    version=$("$(compiler)" -dumpfullversion -dumpversion 2>/dev/null || echo 0)
    version_at_least "$version" $min_compiler ||
      need "C++ compiler: $(compiler) is $version, g++ $min_compiler or newer is needed: a module, or CXX"
  fi
  command -v "${CC:-cc}" >/dev/null || need "C compiler ${CC:-cc}: a module, or CC"
  version=$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{print $2}' || true)
  version_at_least "${version:-0}" $min_glibc ||
    need "glibc $min_glibc or newer (found: ${version:-none}): the bundled cmake and Open MPI do not run on this system"
  choose_torch
  [[ -n $torch_dir ]] || torch_dir=$(torch_dir_of_python "$venv/bin/python" || true)
  [[ -n $torch_dir ]] || need "LibTorch $torch_minimum to $torch_newest: set Torch_DIR to <torch>/share/cmake/Torch, or activate a python that has torch"
  choose_any_python
  choose_mpi
}

# The libraries of an earlier bundle go only once this one is known to be whole.
unpack() {
  local part
  rm -rf "$parts"
  mkdir -p "$parts"
  if ! tar -xf "$bundle" -C "$parts" --strip-components=1 2>"$deps/bundle.log" || [[ ! -e $parts/SHA256SUMS ]]; then
    need "the bundle: $bundle is cut or no tar of make bundle (log: $deps/bundle.log); copy it anew"
  elif ! (cd "$parts" && sha256sum --quiet -c SHA256SUMS) >"$deps/bundle.log" 2>&1; then
    need "the bundle: $(head -n 1 "$deps/bundle.log"): $bundle was cut or changed; copy it anew"
  fi
  stop_if_missing
  rm -rf "$deps/bundle.stamp" "$prefix"
  mkdir -p "$prefix"
  for part in "$parts"/*.tar.xz; do
    tar -xJf "$part" -C "$parts"
    rm "$part"
  done
}

# Old build folders hold paths of libraries that the prefix replaces.
forget_other_libraries() {
  local cache=$root/build/CMakeCache.txt
  if [[ -e $cache ]] && ! grep -q "^fmt_DIR:.*=$prefix/" "$cache"; then
    say "build/ was configured with other libraries: it is configured anew"
    rm -rf "$cache" "$root/build/CMakeFiles"
  fi
}

find_what_the_bundle_lacks
stop_if_missing
stamp="bundle $(sha256sum <"$bundle") $(cat "$here/bundle/libraries.sh" | cksum) $("$(compiler)" -dumpfullversion)"
if [[ $(cat "$deps/bundle.stamp" 2>/dev/null) != "$stamp" || ! -x $prefix/bin/cmake ]]; then
  unpack
  say "building the small libraries into $prefix with $jobs jobs"
  build_libraries
  stop_if_missing
  rm -rf "$parts"
  echo "$stamp" >"$deps/bundle.stamp"
fi
if [[ $mpi_home == "$prefix/openmpi" ]] && ! said=$("$mpi_home/bin/mpirun" --version 2>&1); then
  need "MPI: the bundled Open MPI does not start (${said##*$'\n'}); set MPI_HOME to another"
  stop_if_missing
fi
choose_cuda "$venv/lib/python3"*/site-packages "$torch_dir/../../../.." ||
  say "no nvcc (CUDA_HOME, path, nvidia-cuda-nvcc beside torch): device code is not built"
tests=$(python_tests)
[[ $tests == ON ]] || say "$python lacks h5py, matplotlib, numpy, pandas or pytest: tests in Python are left out"

cat >"$deps/env.sh.new" <<END
export SHARDMARK_DEPS='$deps'
export SHARDMARK_PYTHON='$python'
export SHARDMARK_CMAKE_FLAGS='-DSM_PYTHON_TESTS=$tests'
export Torch_DIR='$torch_dir'
export HDF5_ROOT='${HDF5_ROOT:-$prefix}'
case ":\$PATH:" in *":$prefix/bin:"*) ;; *) export PATH='$prefix/bin':"\$PATH" ;; esac
case ":\${CMAKE_PREFIX_PATH:-}:" in *":$prefix:"*) ;; *) export CMAKE_PREFIX_PATH='$prefix'"\${CMAKE_PREFIX_PATH:+:\$CMAKE_PREFIX_PATH}" ;; esac
END
[[ -z $mpi_home ]] || echo "export MPI_HOME='$mpi_home'" >>"$deps/env.sh.new"
[[ -z $cuda_home || $cuda_home == "${CUDA_HOME:-}" ]] || echo "export CUDA_HOME='$cuda_home'" >>"$deps/env.sh.new"
rm -f "$deps/stamp" # what setup.sh left: it must look again
if cmp -s "$deps/env.sh.new" "$deps/env.sh" 2>/dev/null; then
  rm "$deps/env.sh.new"
else
  mv "$deps/env.sh.new" "$deps/env.sh"
  say "ready: LibTorch $torch_dir, MPI ${mpi_home:-of the path}, CUDA ${cuda_home:-$(command -v nvcc || echo none)}"
fi
forget_other_libraries

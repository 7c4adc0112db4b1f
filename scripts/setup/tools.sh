# shellcheck shell=bash disable=SC2154,SC2034
# Compilers, libraries and tools: is each there in the needed version, and which package or variable supplies it.
# Read by setup.sh. What counts is what the compiler and the path find, not which package manager put it there.

min_compiler=12
min_cmake=3.24
formatter=14  # the clang-format that the tree is laid out by; other versions break lines elsewhere
absent=()     # Debian packages that would supply what is missing
unfilled=()   # the same as sentences

version_at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }
compiler() { echo "${CXX:-g++}"; }

# Folders in which headers may lie besides the compiler's own.
include_flags() {
  local prefix prefixes=${CMAKE_PREFIX_PATH:-}
  for prefix in ${HDF5_ROOT:-} ${MPI_HOME:-} ${prefixes//[:;]/ }; do
    printf -- '-I%s/include ' "$prefix"
  done
  for prefix in /usr/include/hdf5/serial /usr/include/hdf5/openmpi /usr/include/hdf5/mpich; do
    printf -- '-I%s ' "$prefix"
  done
}

# Header, package, what else supplies it.
headers="
spdlog/spdlog.h          libspdlog-dev        CMAKE_PREFIX_PATH
fmt/format.h             libfmt-dev           CMAKE_PREFIX_PATH
CLI/CLI.hpp              libcli11-dev         CMAKE_PREFIX_PATH
toml++/toml.h            libtomlplusplus-dev  CMAKE_PREFIX_PATH
nlohmann/json.hpp        nlohmann-json3-dev   CMAKE_PREFIX_PATH
gtest/gtest.h            libgtest-dev         CMAKE_PREFIX_PATH
gmock/gmock.h            libgmock-dev         CMAKE_PREFIX_PATH
benchmark/benchmark.h    libbenchmark-dev     CMAKE_PREFIX_PATH
hdf5.h                   libhdf5-dev          HDF5_ROOT
"

lacks() { # what, package, remedy besides the package
  absent+=("$2")
  unfilled+=("$1: Debian package $2, or $3")
}

# Names of the headers there are: one preprocessor run, or without a compiler a look at where they usually lie.
headers_found() {
  local header package variable flag
  if command -v "$(compiler)" >/dev/null; then
    while read -r header package variable; do
      [[ -z $header ]] || printf '#if __has_include(<%s>)\nFOUND %s\n#endif\n' "$header" "$header"
    done <<<"$headers" | "$(compiler)" -x c++ -std=c++20 -E -P $(include_flags) - 2>/dev/null || true
    return
  fi
  while read -r header package variable; do
    for flag in -I/usr/include $(include_flags); do
      [[ -z $header || ! -e ${flag#-I}/$header ]] || echo "FOUND $header"
    done
  done <<<"$headers"
}

find_missing_headers() {
  local header package variable found
  found=$(headers_found)
  while read -r header package variable; do
    if [[ -n $header && $found != *"FOUND $header"* ]]; then
      lacks "header <$header>" "$package" "an installation named by $variable"
    fi
  done <<<"$headers"
}

find_missing_tools() {
  absent=()
  unfilled=()
  local version
  if ! command -v "$(compiler)" >/dev/null; then
    lacks "C++ compiler $(compiler)" g++ "a module, or CXX"
  else
    version=$("$(compiler)" -dumpfullversion -dumpversion 2>/dev/null || echo 0)
    version_at_least "$version" $min_compiler ||
      lacks "C++ compiler: $(compiler) is $version, g++ $min_compiler or newer is needed" g++ "a module, or CXX"
  fi
  find_missing_headers
  version=$(cmake --version 2>/dev/null | awk 'NR == 1 {print $3}' || true)
  version_at_least "${version:-0}" $min_cmake ||
    lacks "cmake $min_cmake or newer (found: ${version:-none})" cmake "a module, or pip install cmake"
  command -v ninja >/dev/null || lacks ninja ninja-build "a module, or pip install ninja"
  command -v make >/dev/null || lacks make make "a module"
  command -v git >/dev/null || lacks git git "a module"
  command -v ps >/dev/null || lacks ps procps "the path"
  if [[ -n ${MPI_HOME:-} ]]; then
    [[ -e $MPI_HOME/include/mpi.h || -x $MPI_HOME/bin/mpicc ]] ||
      unfilled+=("MPI: MPI_HOME = $MPI_HOME has neither include/mpi.h nor bin/mpicc; name the folder of an MPI or unset it")
  else
    command -v mpicc >/dev/null || lacks "MPI compiler mpicc" libopenmpi-dev "a module, or MPI_HOME"
    command -v mpirun >/dev/null || lacks "MPI launcher mpirun" openmpi-bin "a module, or MPI_HOME"
  fi
  if [[ -n ${HDF5_ROOT:-} && ! -e $HDF5_ROOT/include/hdf5.h ]]; then
    unfilled+=("HDF5: HDF5_ROOT = $HDF5_ROOT has no include/hdf5.h; name the folder of an HDF5 or unset it")
  fi
  command -v h5dump >/dev/null || [[ -x ${HDF5_ROOT:-}/bin/h5dump ]] || lacks h5dump hdf5-tools HDF5_ROOT
  # Nothing is built with it: the formatting test is skipped without it.
  command -v clang-format-$formatter >/dev/null || command -v clang-format >/dev/null || absent+=(clang-format)
  if ! find_base_python; then
    lacks "Python 3.11 or newer that can make environments" python3 "a module, or SHARDMARK_PYTHON"
    absent+=(python3-venv)
  fi
}

report_missing_tools() {
  local line
  for line in "${unfilled[@]}"; do
    need "$line"
  done
  if [[ -n ${CUDA_HOME:-} && ! -x $CUDA_HOME/bin/nvcc ]]; then
    say "CUDA_HOME = $CUDA_HOME has no bin/nvcc: device code will not be built unless nvcc is in the path"
  fi
  if ! { clang-format-$formatter --version || clang-format --version; } 2>/dev/null | grep -q "version $formatter\."; then
    say "no clang-format $formatter (Debian 12's package clang-format): the formatting test is skipped, make format does not work"
  fi
}

install_packages() {
  local log=$deps/apt.log sizes
  export DEBIAN_FRONTEND=noninteractive
  say "installing Debian packages: ${absent[*]}"
  apt-get update -qq >"$log" 2>&1 || say "apt-get update failed (log: $log); trying with the lists at hand"
  sizes=$(LC_ALL=C apt-get install --assume-no --no-install-recommends "${absent[@]}" 2>/dev/null |
    grep -E '^(Need to get|After this operation)' | tr '\n' ' ' || true)
  say "${sizes:-apt-get gives no sizes}"
  if ! apt-get install -y -qq --no-install-recommends "${absent[@]}" >>"$log" 2>&1; then
    grep -E '^(E|Err):' "$log" | tail -n 3 >&2 || true
    say "apt-get could not install everything (log: $log)"
  fi
}

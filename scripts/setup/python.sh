# shellcheck shell=bash disable=SC2154,SC2034
# Python, its packages and LibTorch. Read by setup.sh.

torch_minimum=2.11
torch_newest=2.14
requirements=$here/setup/requirements.txt
constraints=$here/setup/constraints.txt
torch_pin=$(grep '^torch==' "$constraints")
base_python=
python=      # what the scripts and their tests run on
torch_dir=   # what CMake builds with
own_torch=0  # LibTorch comes out of our environment

package_names() { grep -v '^#' "$requirements" | tr '\n' ' '; }

# A Python 3.11 or newer that can make an environment, by itself or with Debian's pip wheel.
find_base_python() {
  local candidate
  for candidate in python3 /usr/bin/python3 python; do
    if command -v "$candidate" >/dev/null && "$candidate" - 2>/dev/null <<'END'; then
import glob, importlib.util, sys, venv
found = any(importlib.util.find_spec(name) for name in ("ensurepip", "pip"))
sys.exit(0 if sys.version_info >= (3, 11) and (found or glob.glob("/usr/share/python-wheels/pip-*.whl")) else 1)
END
      base_python=$(command -v "$candidate")
      return 0
    fi
  done
  [[ -n $asked_python ]]
}

# Changes with anything that would change the outcome: the scripts, the wishes, the tools.
stamp_of_everything() {
  {
    cat "$here/setup.sh" "$here/setup/"*.{sh,py,txt}
    printf '%s\n' "$deps" "$asked_torch" "$asked_python" "${CXX:-}" "${CUDA_HOME:-}" "${MPI_HOME:-}" "${HDF5_ROOT:-}" "${CMAKE_PREFIX_PATH:-}" \
      "${VIRTUAL_ENV:-}" "${CONDA_PREFIX:-}" "$("$(compiler)" -dumpfullversion -dumpversion 2>&1)" "$(cmake --version 2>&1)"
    command -v make ninja mpicc mpirun h5dump git ps python python3 clang-format nvcc || true
  } | cksum
}

# What the last call promised still exists.
still_there() (
  source "$deps/env.sh"
  [[ -x $SHARDMARK_PYTHON && -e $Torch_DIR/TorchConfig.cmake && -e $Torch_DIR/../../../lib/libtorch_cpu.so ]] &&
    [[ ${CUDA_HOME:-} != "$deps/cuda" || -x $deps/cuda/bin/nvcc ]]
)

# "2.14" of a LibTorch, from its own header: versions like 2.14.0a0+hash are numbers there.
torch_version_of() { # cmake folder
  local include=$1/../../../include/torch
  cat "$include/csrc/api/include/torch/version.h" "$include/headeronly/version.h" 2>/dev/null |
    awk '/define TORCH_VERSION_MAJOR/ {major = $3} /define TORCH_VERSION_MINOR/ {minor = $3}
         END {if (major != "") print major "." minor}' || true
}

torch_dir_of_python() { # python
  "$1" - 2>/dev/null <<'END'
import importlib.util, os, sys
spec = importlib.util.find_spec("torch")
folder = os.path.join(os.path.dirname(spec.origin), "share", "cmake", "Torch") if spec and spec.origin else ""
print(folder) if os.path.exists(os.path.join(folder, "TorchConfig.cmake")) else sys.exit(1)
END
}

choose_torch() {
  local version candidate
  if [[ -n $asked_torch ]]; then
    version=$(torch_version_of "$asked_torch")
    if [[ ! -e $asked_torch/TorchConfig.cmake ]]; then
      need "LibTorch: Torch_DIR = $asked_torch has no TorchConfig.cmake; name <torch>/share/cmake/Torch or unset it"
    elif ! version_at_least "${version:-0}" $torch_minimum; then
      need "LibTorch: Torch_DIR = $asked_torch is version ${version:-unknown}; $torch_minimum to $torch_newest are supported"
    fi
    torch_dir=$asked_torch
    return
  fi
  for candidate in python python3; do
    torch_dir=$(torch_dir_of_python "$candidate" || true)
    [[ -n $torch_dir && $torch_dir != "$venv"/* ]] || continue
    version=$(torch_version_of "$torch_dir")
    if version_at_least "${version:-0}" $torch_minimum; then
      say "using torch $version of the active python: $torch_dir"
      return
    fi
    say "torch ${version:-of unknown version} of the active python is older than $torch_minimum: not used"
  done
  own_torch=1
  torch_dir=
}

choose_python() {
  [[ -n $asked_python ]] || return 0
  local module
  for module in $(package_names); do
    "$asked_python" -c "import $module" 2>/dev/null ||
      need "Python package $module: SHARDMARK_PYTHON = $asked_python cannot import it; install it there or unset SHARDMARK_PYTHON"
  done
  python=$asked_python
}

new_environment() {
  local log=$deps/venv.log wheel
  rm -rf "$venv"
  if "$base_python" -c 'import ensurepip' 2>/dev/null; then
    "$base_python" -m venv "$venv" >"$log" 2>&1 && return 0
  fi
  # No ensurepip: pip of the base Python, or Debian's wheel of it, installs pip.
  rm -rf "$venv"
  "$base_python" -m venv --without-pip "$venv" >>"$log" 2>&1 || return 1
  if "$base_python" -m pip --version >/dev/null 2>&1; then
    "$base_python" -m pip --python "$venv/bin/python" install --quiet pip >>"$log" 2>&1 && return 0
  fi
  for wheel in /usr/share/python-wheels/pip-*.whl; do
    [[ -e $wheel ]] || continue
    "$venv/bin/python" "$wheel/pip" install --quiet pip >>"$log" 2>&1 && return 0
    "$venv/bin/python" "$wheel/pip" install --quiet --no-index "$wheel" >>"$log" 2>&1 && return 0
  done
  return 1
}

environment_state() { # names of packages; prints what is wrong, returns check_venv.py's code
  [[ -x $venv/bin/python ]] || { echo "no Python in it"; return 2; }
  "$venv/bin/python" -m pip --version >/dev/null 2>&1 || { echo "pip does not run"; return 2; }
  "$venv/bin/python" "$here/setup/check_venv.py" "$constraints" "$@" || return $?
  "$venv/bin/python" -m pip check || return 1
}

free_mib() { df -Pm "$deps" | awk 'NR == 2 {print $4}'; }

install_into_environment() { # state, code, names
  local state=$1 code=$2 wanted_mib=400
  shift 2
  if ((own_torch)) && [[ $code == 2 || $state == *torch* ]]; then
    wanted_mib=6100
    say "downloading $torch_pin and the CUDA libraries it is built for: about 3 GB, 6 GB on disk, into $venv"
  else
    say "downloading Python packages for the scripts: about 60 MB, 300 MB on disk, into $venv"
  fi
  if [[ " $* " == *" nvidia-cuda-nvcc "* ]] && [[ $code == 2 || $state == *nvidia-cuda-nvcc* ]]; then
    wanted_mib=$((wanted_mib + 400))
    say "no nvcc here: that of CUDA 13.0 comes along, about 110 MB, 330 MB on disk"
  fi
  if (($(free_mib) < wanted_mib)); then
    need "disk space: $(free_mib) MiB are free at $deps, $wanted_mib are needed; SHARDMARK_DEPS names another place"
    return
  fi
  if [[ $code == 2 ]]; then
    [[ ! -e $venv ]] || say "the environment is half-made and is made anew: $(head -n 1 <<<"$state")"
    if [[ -z $base_python ]] || ! new_environment; then
      need "Python environment: ${base_python:-no Python} could not make $venv (log: $deps/venv.log):" \
        "Debian package python3-venv, or SHARDMARK_PYTHON and Torch_DIR"
      return
    fi
  fi
  if ! "$venv/bin/python" -m pip install --quiet --constraint "$constraints" "$@" >"$deps/pip.log" 2>&1; then
    tail -n 3 "$deps/pip.log" >&2
    report_missing_packages "$@"
  fi
}

make_environment() {
  local names=() state code=0
  if [[ -n $asked_python ]] && ((!own_torch)); then
    return
  fi
  [[ -n $asked_python ]] || read -r -a names <<<"$(package_names)"
  ((!own_torch)) || names+=(torch)
  names+=(nvidia-cuda-cuobjdump)
  nvcc_of_system || names+=(nvidia-cuda-nvcc nvidia-cuda-cccl)
  state=$(environment_state "${names[@]}") || code=$?
  if ((code != 0)); then
    install_into_environment "$state" "$code" "${names[@]}"
    ((${#missing[@]} == 0)) || return 0
  fi
  if ((own_torch)); then
    torch_dir=$(torch_dir_of_python "$venv/bin/python" || true)
    [[ -n $torch_dir ]] || need "LibTorch: the torch in $venv has no share/cmake/Torch; set Torch_DIR to one that has"
  fi
  [[ -n $asked_python ]] || python=$venv/bin/python
}

report_missing_packages() { # names
  local name
  for name in "$@"; do
    "$venv/bin/python" -c "import importlib.metadata; importlib.metadata.distribution('$name')" 2>/dev/null && continue
    if [[ $name == torch ]]; then
      need "LibTorch: pip could not install $torch_pin (log: $deps/pip.log); set Torch_DIR, or activate a python that has torch"
    elif [[ $name == nvidia-cuda-* ]]; then
      need "CUDA's tools ($name): pip could not install it (log: $deps/pip.log); set CUDA_HOME to a toolkit and try again with a network"
    else
      need "Python package $name: pip could not install it (log: $deps/pip.log); set SHARDMARK_PYTHON to a Python that has it"
    fi
  done
  ((${#missing[@]} > 0)) || need "Python packages: pip failed (log: $deps/pip.log)"
}

# shellcheck shell=bash disable=SC2154,SC2034
# Where nvcc comes from: CUDA_HOME, the path, /usr/local/cuda, or PyPI's nvcc beside LibTorch. Read by setup.sh and
# bundle/use.sh, which set deps (where a toolkit's folder may be made).

usual_cuda=${SHARDMARK_USUAL_CUDA:-/usr/local/cuda} # tests name another place
cuda_home= # to be exported as CUDA_HOME; empty if nvcc is in the path, or nowhere

# A shell that has read env.sh asks for nothing of its own.
[[ ${CUDA_HOME:-} != "$deps/cuda" ]] || unset CUDA_HOME

nvcc_of_system() {
  if [[ -n ${CUDA_HOME:-} && -x $CUDA_HOME/bin/nvcc ]]; then
    cuda_home=$CUDA_HOME
  elif command -v nvcc >/dev/null; then
    cuda_home=
  elif [[ -x $usual_cuda/bin/nvcc ]]; then
    cuda_home=$usual_cuda
  else
    return 1
  fi
}

# nvcc looks for its libraries in lib64, CMake for libcudart.so: the wheels have neither, and other people's site-packages
# are not ours to change. So a folder of links shows the wheels' files as a toolkit does.
toolkit_of_wheels() { # nvidia/cu13 of a site-packages folder
  local wheels=$1 home=$deps/cuda runtime
  rm -rf "$home"
  mkdir -p "$home/bin" "$home/lib64"
  ln -s "$wheels/bin/"* "$home/bin/"
  ln -s "$wheels/lib/"* "$home/lib64/"
  for runtime in "$wheels"/lib/libcudart.so.*; do
    [[ ! -e $runtime || -e $home/lib64/libcudart.so ]] || ln -s "${runtime##*/}" "$home/lib64/libcudart.so"
  done
  ln -s lib64 "$home/lib"
  ln -s "$wheels/include" "$wheels/nvvm" "$home/"
  cuda_home=$home
}

choose_cuda() { # site-packages folders
  local folder
  nvcc_of_system && return
  for folder in "$@"; do
    if [[ -x $folder/nvidia/cu13/bin/nvcc ]]; then
      toolkit_of_wheels "$folder/nvidia/cu13"
      return
    fi
  done
  return 1
}

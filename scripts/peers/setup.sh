#!/usr/bin/env bash
# Finds a Python for the peers and prints what measure.py needs of it, name=value a line:
#   scripts/peers/setup.sh [--deepspeed] [--torchvision]
#     python=...      has torch, h5py and numpy: SHARDMARK_PEER_PYTHON, the active python, or SHARDMARK_PYTHON
#     site=...        a folder for PYTHONPATH that holds what the options ask for; empty if that Python has it already
#     extensions=...  with --deepspeed: where DeepSpeed keeps what it compiles on first use
# DeepSpeed and torchvision are downloaded once into $SHARDMARK_DEPS/peers, beside the torch that is there. Exit codes: 0 ready, 5 something is
# missing, and the text says how to supply it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
deps=${SHARDMARK_DEPS:-$root/.deps}
requirements=$here/requirements.txt

say() { printf 'peers: %s\n' "$*" >&2; }
stop() {
  say "$*"
  exit 5
}
needed=(torch h5py numpy)
lacking() { # python, modules: those that it does not find
  "$1" - "${@:2}" 2>/dev/null <<'END' || echo "Python itself"
import importlib.util
import sys
print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))
END
}

python=
if [[ -n ${SHARDMARK_PEER_PYTHON:-} ]]; then
  absent=$(lacking "$SHARDMARK_PEER_PYTHON" "${needed[@]}")
  [[ -z $absent ]] || stop "SHARDMARK_PEER_PYTHON = $SHARDMARK_PEER_PYTHON lacks $absent: install it there, or name another Python"
  python=$SHARDMARK_PEER_PYTHON
else
  for candidate in python python3 "${SHARDMARK_PYTHON:-$deps/venv/bin/python}"; do
    if command -v "$candidate" >/dev/null && [[ -z $(lacking "$candidate" "${needed[@]}") ]]; then
      python=$(command -v "$candidate")
      break
    fi
  done
  [[ -n $python ]] || stop "no Python with torch, h5py and numpy: activate one, set SHARDMARK_PEER_PYTHON, or run scripts/setup.sh"
fi
echo "python=$python"
wanted=()
for option in "$@"; do
  case $option in
  --deepspeed | --torchvision) wanted+=("${option#--}") ;;
  *)
    say "unknown option $option: --deepspeed and --torchvision are known"
    exit 2
    ;;
  esac
done
((${#wanted[@]} > 0)) || exit 0

tag=$("$python" -c 'import sys; print(f"cp{sys.version_info[0]}{sys.version_info[1]}")')
site=$deps/peers/$tag
if [[ -z $(lacking "$python" "${wanted[@]}") ]]; then
  site=
elif [[ $(cat "$site/complete" 2>/dev/null) != "$(cksum <"$requirements")" ]]; then
  mkdir -p "$deps/peers"
  say "downloading $(grep -E '^(deepspeed|torchvision)' "$requirements" | paste -sd ' ') and what they import: about 25 MB, 100 MB on disk, into $site"
  free_mib=$(df -Pm "$deps/peers" | awk 'NR == 2 {print $4}')
  ((free_mib >= 200)) || stop "$free_mib MiB are free at $deps/peers, 200 are needed; SHARDMARK_DEPS names another place"
  aside=$site.new
  rm -rf "$aside"
  DS_BUILD_OPS=0 "$python" -m pip install --quiet --no-deps --target "$aside" -r "$requirements" >"$deps/peers/pip.log" 2>&1 || {
    tail -n 3 "$deps/peers/pip.log" >&2
    stop "pip could not install $requirements (log: $deps/peers/pip.log). Without network: fetch these packages elsewhere" \
      "(pip download --no-deps -r requirements.txt), then set PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER; or set" \
      "SHARDMARK_PEER_PYTHON to a Python that has ${wanted[*]}; or leave zero1, zero2, zero3 and retinanet-mini out of --cells"
  }
  cksum <"$requirements" >"$aside/complete"
  rm -rf "$site"
  mv "$aside" "$site"
fi
if [[ " ${wanted[*]} " == *" torchvision "* ]]; then
  PYTHONPATH=${site:+$site:}${PYTHONPATH:-} "$python" -c 'import torchvision' 2>/dev/null || stop "torchvision of" \
    "${site:-$python} does not load beside torch $("$python" -c 'import torch; print(torch.__version__)'): name the one that" \
    "belongs to it in $requirements, or set SHARDMARK_PEER_PYTHON to a Python that has both"
fi
if [[ " ${wanted[*]} " != *" deepspeed "* ]]; then
  echo "site=$site"
  exit 0
fi
# DeepSpeed compiles its own Adam and its shared-memory start-up on first use.
command -v "${CXX:-g++}" >/dev/null || stop "DeepSpeed needs a C++ compiler: Debian package g++, or CXX"
header=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')/Python.h
[[ -e $header ]] || stop "DeepSpeed needs $header: Debian package python3-dev, or a Python that has its headers"
echo "site=$site"
echo "extensions=$deps/peers/extensions-$tag"

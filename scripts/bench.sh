#!/usr/bin/env bash
# The first real comparison: mlp and mlp-digits on real data, alone and under ddp at 1 and 2 ranks; records in results/.
set -eu
cd "$(dirname "$0")/.."
: "${SHARDMARK_PYTHON:?run make bench, which sets it}" "${SHARDMARK_DEPS:?run make bench, which sets it}"
data=$SHARDMARK_DEPS/data
mkdir -p "$data" results
for set in digits diabetes; do
  # Files of an older prepare_data.py are made anew (the wheel they come from is kept).
  [ "$data/$set.h5" -nt scripts/prepare_data.py ] || "$SHARDMARK_PYTHON" scripts/prepare_data.py "$set" -o "$data/$set.h5"
done

records=()
run() { # preset data technique ranks
  local record=results/$1-$3-n$4.h5
  scripts/launch.sh "$4" build/shardmark run "$1" --technique "$3" -o "$record" --set output.overwrite=true \
    --set data.path="$data/$2.h5" --set data.eval_path="$data/$2.eval.h5"
  records+=("$record")
}
for case in "mlp diabetes" "mlp-digits digits"; do
  set -- $case
  run "$1" "$2" single 1
  run "$1" "$2" ddp 1
  run "$1" "$2" ddp 2
done
echo
exec build/shardmark compare "${records[@]}"

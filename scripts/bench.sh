#!/usr/bin/env bash
# The first real comparison: mlp alone and under ddp; mlp-digits, mlp-wide and lm10m under every technique, at 1 and 2 ranks.
# Digits, diabetes and English text are real data; mlp-wide trains on synthetic rows. Records lie in results/ afterwards.
set -eu
cd "$(dirname "$0")/.."
: "${SHARDMARK_PYTHON:?run make bench, which sets it}" "${SHARDMARK_DEPS:?run make bench, which sets it}"
data=$SHARDMARK_DEPS/data
mkdir -p "$data" results
# Files of older scripts are made anew (what they are made from is kept).
fresh() { [ "$data/$1.h5" -nt scripts/prepare_data.py ] && [ "$data/$1.h5" -nt scripts/prepare/text.py ]; }
for set in digits diabetes text; do
  fresh "$set" || "$SHARDMARK_PYTHON" scripts/prepare_data.py "$set" -o "$data/$set.h5"
done

records=()
run() { # preset data technique ranks [--set ...]
  local record=results/$1-$3-n$4.h5 preset=$1 set=$2 technique=$3 ranks=$4 paths=()
  shift 4
  [ "$set" = synthetic ] || paths=(--set data.path="$data/$set.h5" --set data.eval_path="$data/$set.eval.h5")
  scripts/launch.sh "$ranks" build/shardmark run "$preset" --technique "$technique" -o "$record" --set output.overwrite=true \
    "${paths[@]}" "$@"
  records+=("$record")
}
run mlp diabetes single 1
run mlp diabetes ddp 1
run mlp diabetes ddp 2
for case in "mlp-digits digits" "mlp-wide synthetic --set measure.steps=10 --set measure.blocks=3" \
  "lm10m text --set measure.steps=3 --set measure.blocks=2"; do
  set -- $case
  preset=$1 set=$2
  shift 2
  run "$preset" "$set" single 1 "$@"
  for technique in ddp zero1 zero2 zero3 fsdp; do
    run "$preset" "$set" "$technique" 2 "$@"
  done
done
echo
build/shardmark compare "${records[@]}"
echo
build/shardmark compare --memory "${records[@]}"

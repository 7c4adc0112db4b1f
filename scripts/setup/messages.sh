# shellcheck shell=bash disable=SC2154
# How set-up speaks: what is missing is gathered and named at once, each with its remedy. Read by setup.sh and bundle/use.sh.

missing=()
say() { printf '%s: %s\n' "${speaker:-setup}" "$*" >&2; }
need() { missing+=("$*"); }
stop_if_missing() {
  ((${#missing[@]} > 0)) || return 0
  say "cannot go on, missing:"
  printf '  - %s\n' "${missing[@]}" >&2
  exit 5
}

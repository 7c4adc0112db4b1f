#!/usr/bin/env bash
# Starts COMMAND on N ranks of this machine: the one place that knows the launcher's flags.
#   scripts/launch.sh N COMMAND [ARGUMENT]...
# SHARDMARK_MPIEXEC        the launcher (default: $MPI_HOME/bin/mpirun, then mpirun of the path)
# SHARDMARK_MPIEXEC_FLAGS  further flags, split at spaces
# SHARDMARK_BIND           what ranks are bound to if they fit the cores (default none; a benchmark wants core)
set -euo pipefail

usage="usage: scripts/launch.sh N COMMAND [ARGUMENT]..."
if [[ $# -lt 2 || ! $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "$usage" >&2
  exit 2
fi
num_ranks=$1
shift

launcher=${SHARDMARK_MPIEXEC:-}
if [[ -z $launcher ]]; then
  if [[ -n ${MPI_HOME:-} && -x $MPI_HOME/bin/mpirun ]]; then
    launcher=$MPI_HOME/bin/mpirun
  else
    launcher=$(command -v mpirun || true)
  fi
fi
if [[ -z $launcher ]]; then
  echo "launch.sh: no mpirun found: run scripts/setup.sh, or set MPI_HOME or SHARDMARK_MPIEXEC" >&2
  exit 5
fi

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
flags=()
version=$("$launcher" --version 2>&1 || true)
if [[ $version == *"Open MPI"* || $version == *"open-mpi"* || $version == *OpenRTE* ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  # Open MPI counts cores, not hardware threads, as slots; whether ranks share a core is decided and recorded by the program.
  flags+=(--oversubscribe)
  # nproc obeys OMP_NUM_THREADS, which says nothing of cores.
  if ((num_ranks > $(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc))); then
    flags+=(--bind-to none)
  else
    flags+=(--bind-to "${SHARDMARK_BIND:-none}")
  fi
fi
read -r -a extra <<<"${SHARDMARK_MPIEXEC_FLAGS:-}"
exec "$launcher" -np "$num_ranks" "${flags[@]}" "${extra[@]}" "$@"

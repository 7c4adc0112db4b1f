"""The steps of gpu_check as data: name, limit, command. check.py runs them in this order.

A command is bash, run in the root of the tree with env.sh read, -eu and pipefail. It may call `skip REASON`, which lists the
step as skipped. @name@ stands for a fact (facts.py) or one of: out, records, setup, here. `after` names a step that must have passed.
`least_s`: with less time left the step is not begun.
"""

TECHNIQUES = ("ddp", "zero1", "zero2", "zero3", "fsdp")
CHECKED_PRESETS = ("mlp-digits", "lm10m-tiny")
# Whole kernels first: what does not exist in this tree or without a toolkit is left out (targets.py).
TARGETS = ("shardmark", "gpu_tests", "bench_kernels", "bench_fused")
MULTI_RANK_NCCL = (2, 30)  # the first NCCL that knows NCCL_MULTI_RANK_GPU_ENABLE

FACTS = """
show() { echo "== $*"; "$@" 2>&1 || true; }
show date; show uname -a; show lscpu; show free -g
show nvidia-smi -q; show nvidia-smi topo -m; show nvcc --version; show "${CXX:-g++}" --version
show mpirun --version; show python3 --version; show git -C "$PWD" log -1 --oneline
env | grep -E '^(Torch_DIR|CUDA_|NCCL_|MPI_HOME|HDF5_ROOT|OMP_|SHARDMARK_|SLURM_JOB_ID)' | sort || true
"""

BUILD = """
@setup@
. "${SHARDMARK_DEPS:-.deps}/env.sh"
cmake --preset release -DTorch_DIR="$Torch_DIR" ${SHARDMARK_CMAKE_FLAGS:-}
cmake --build build -j @cores@ --target $(@python@ @here@/targets.py build @targets@)
"""

# gtest returns 0 when every test was skipped; that must not read as passed.
ALL_SKIPPED = """
reason=$(grep -m 1 'no CUDA device' "$log" || grep -m 1 -i 'skipped' "$log" || true)
grep -q '\\[       OK \\]' "$log" || skip "${reason:-no test ran}"
"""
GPU_TESTS = """
[ -x build/gpu_tests ] || skip "gpu_tests is not built: no CUDA toolkit"
log=@out@/logs/gpu_tests.txt
%s build/gpu_tests 2>&1 | tee "$log"
""" + ALL_SKIPPED

CTEST = """
[ -x build/gpu_tests ] || skip "gpu_tests is not built: no CUDA toolkit"
log=@out@/logs/ctest-gpu.txt
ctest --test-dir build -L gpu --output-on-failure 2>&1 | tee "$log"
! grep -q 'No tests were found' "$log" || skip "no test has the label gpu"
grep -q -E '^ *[0-9]+/[0-9]+ .* Passed' "$log" || skip "every test was skipped; logs/ctest-gpu.txt says why"
"""

KERNEL_SPEED = """
found=
for program in build/bench/bench_kernels build/bench/bench_fused; do
  [ -x $program ] || continue
  found=1
  $program --benchmark_counters_tabular=true
done
[ -n "$found" ] || skip "no benchmark of kernels is built here"
"""

RUN = """
scripts/launch.sh @np@ build/shardmark run %(preset)s --technique %(technique)s --set comm.backend=@backend@ \\
  --set numerics.reduction=ordered --set measure.steps=10 --set measure.blocks=2 %(batch)s \\
  --set output.overwrite=true -o @records@/technique-%(preset)s-%(technique)s.h5
"""

LOSSES = """
ls @records@/technique-%(preset)s-*.h5 >/dev/null 2>&1 || skip "no technique of %(preset)s has a record"
build/shardmark compare --format json @records@/technique-%(preset)s-*.h5 > @out@/losses-%(preset)s.json || true
@python@ @here@/losses.py @out@/losses-%(preset)s.json
"""

COMM = """
build/shardmark --help | grep -q '^ *comm ' || skip "this shardmark has no command comm"
# Rows are printed and written as they are measured: what a limit cuts is in the log, and in comm.h5.partial.
scripts/launch.sh @np@ build/shardmark comm --backend @backend@ --overwrite -o @records@/comm.h5
"""

PRESET = """
scripts/launch.sh @np@ build/shardmark run %(preset)s --technique %(technique)s --set comm.backend=@backend@ \\
  --set measure.steps=5 --set measure.blocks=2 --set output.overwrite=true -o @records@/preset-%(preset)s-%(technique)s.h5
"""

COMPARE = """
ls @records@/preset-*.h5 >/dev/null 2>&1 || skip "no preset has a record"
# Presets are not compared with one another: exit 2, no fair pair, is as expected as 0.
build/shardmark compare --format md @records@/preset-*.h5 > @out@/throughput.md || [ $? = 2 ]
cat @out@/throughput.md
"""


def batch_of(preset, ranks):
    """A global batch that the ranks can share: lm10m-tiny has 12 rows over all of them."""
    rows = 12 if 12 % ranks == 0 else 12 * ranks
    return f"--set data.global_batch={rows}" if preset == "lm10m-tiny" else ""


def verify(preset, ranks, backend, variables=""):
    return (f"{variables} scripts/launch.sh {ranks} build/shardmark verify {preset} --quick --set comm.backend={backend} "
            f"{batch_of(preset, ranks)}")


def shared_device_steps(facts):
    """Several ranks on one GPU: over NCCL where it can, else over MPI, and the page says why."""
    known = facts["nccl_version"] >= MULTI_RANK_NCCL
    backend = "nccl" if known and facts["devices"] else "mpi"
    variables = "NCCL_MULTI_RANK_GPU_ENABLE=1 CUDA_VISIBLE_DEVICES=0" if facts["devices"] else ""
    version = ".".join(map(str, facts["nccl_version"])) or "unknown"
    note = "" if backend == "nccl" else (
        "over MPI: rehearsal" if not facts["devices"] else
        f"over MPI: NCCL {version} does not know NCCL_MULTI_RANK_GPU_ENABLE (from {'.'.join(map(str, MULTI_RANK_NCCL))} on)")
    for ranks in (2, 4):
        for preset in CHECKED_PRESETS:
            yield dict(name=f"shared-{preset}-np{ranks}", limit_s=40, after="build", note=note,
                       command=verify(preset, ranks, backend, variables))


def steps(facts):
    """All steps but those of single presets, which preset_step makes once the program is built."""
    ranks = facts["np"]
    note = "" if facts["devices"] else "over MPI on the CPU: rehearsal"
    yield dict(name="facts", limit_s=30, command=FACTS)
    yield dict(name="build", limit_s=420, least_s=60, command=BUILD)
    yield dict(name="ctest-gpu", limit_s=90, after="build", command=CTEST)
    yield dict(name="kernels", limit_s=60, after="build", command=GPU_TESTS % "")
    sanitizer = facts["compute_sanitizer"]
    if not facts["devices"]:
        yield dict(name="kernels-memcheck", skip="needs a device")
    elif not sanitizer:
        yield dict(name="kernels-memcheck", skip="no compute-sanitizer in the path or the toolkit")
    else:
        yield dict(name="kernels-memcheck", limit_s=90, after="build",
                   command=GPU_TESTS % f"{sanitizer} --tool memcheck --error-exitcode 9")
    for preset in CHECKED_PRESETS:
        for technique in TECHNIQUES:
            yield dict(name=f"{preset}-{technique}", limit_s=30, after="build", note=note,
                       command=RUN % dict(preset=preset, technique=technique, batch=batch_of(preset, ranks)))
        yield dict(name=f"losses-{preset}", limit_s=15, after="build", command=LOSSES % dict(preset=preset))
        yield dict(name=f"verify-{preset}", limit_s=40, after="build", note=note, command=verify(preset, ranks, facts["backend"]))
    yield from shared_device_steps(facts)
    yield dict(name="comm", limit_s=60, after="build", note=note, command=COMM)
    yield dict(name="presets", expand="presets", after="build")
    yield dict(name="throughput", limit_s=20, after="build", least_s=1, command=COMPARE)
    yield dict(name="kernel-speed", limit_s=40, after="build", command=KERNEL_SPEED)


# A step of these takes minutes on a CPU, or activations, which `plan` does not count, more than its memory.
FOR_DEVICES = {"retinanet", "retinanet-v1", "lm-100m", "lm-300m", "lm-1b", "two-tower-zipf"}


def preset_step(preset, technique, why, rehearse=False):
    """A preset under `technique`, or the reason why none fits."""
    if rehearse and preset in FOR_DEVICES:
        return dict(name=f"preset-{preset}", skip="needs a device: too large for a CPU")
    if technique is None:
        return dict(name=f"preset-{preset}", skip=why)
    return dict(name=f"preset-{preset}", limit_s=60, note=why, command=PRESET % dict(preset=preset, technique=technique))

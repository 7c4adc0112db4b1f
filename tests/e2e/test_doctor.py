"""`doctor` finds real misconfigurations planted in its environment: the verdict of the line, its remedy, exit 5 only if one fails."""

import json
import os
import shutil
import subprocess

import pytest
from conftest import BINARY
from doctor_calls import doctor, lines, mapped, preload


def cores():
    return len(os.sched_getaffinity(0))


def test_alone_it_starts_no_mpi_and_nothing_fails(program):
    done = doctor(program)
    found = lines(done)
    assert done.returncode == 0
    assert found["launcher"]["result"] == "pass" and "MPI was not started" in found["launcher"]["found"]
    assert found["world size"]["result"] == "skip" and "mpirun" in found["world size"]["remedy"]
    assert found["messages"]["result"] == "skip"
    for check in ("mpi", "hdf5", "hdf5 kind", "libtorch", "duplicate libraries", "output folder", "clock"):
        assert found[check]["result"] == "pass", found[check]
    assert not any(program.folder.iterdir())  # the probe is gone


def test_ranks_look_together_and_one_prints(program):
    found = lines(doctor(program, ranks=2))
    assert found["launcher"]["found"].startswith("mpirun of Open MPI, OMPI_COMM_WORLD_SIZE = 2")
    assert found["world size"]["result"] == "pass" and found["world size"]["found"] == "2 ranks on 1 node"
    assert found["messages on a node"]["result"] in ("pass", "warn")  # other load may slow them down
    assert "GB/s" in found["messages on a node"]["found"]


def test_other_formats(program):
    for form, start in (("table", "check"), ("csv", "check,result,found,remedy"), ("md", "| check |")):
        done = doctor(program, form=form)
        assert done.returncode == 0 and done.stdout.startswith(start)
    assert doctor(program, form="xml").returncode == 2


def test_a_batch_job_without_a_launcher(program):
    done = doctor(program, env={"SLURM_NTASKS": "4"})
    line = lines(done)["launcher"]
    assert done.returncode == 5 and line["result"] == "fail"
    assert "SLURM_NTASKS = 4" in line["found"] and "mpirun" in line["remedy"]
    line = lines(doctor(program, env={"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}))["launcher"]
    assert line["result"] == "fail" and "without PMI" in line["found"] and "srun --mpi=pmix" in line["remedy"]
    silent = doctor(program, env={"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"})
    assert silent.returncode == 5 and silent.stdout == ""  # one of the four tells


def test_a_launcher_variable_that_is_no_number(program):
    line = lines(doctor(program, env={"SLURM_NTASKS": "four"}))["launcher"]
    assert line["result"] == "fail" and "SLURM_NTASKS" in line["found"]


def test_a_launcher_of_another_mpi(program):
    for env in ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}, {"PMI_RANK": "0", "PMI_SIZE": "4"}):
        line = lines(doctor(program, env=env))["world size"]
        assert line["result"] == "fail" and "= 4, but MPI sees 1 rank" in line["found"] and "mpirun of the MPI" in line["remedy"]
    done = doctor(program, ranks=2, through=["env", "OMPI_COMM_WORLD_SIZE=3"])
    line = lines(done)["world size"]
    assert line["result"] == "fail" and "= 3, but MPI sees 2 ranks" in line["found"]


def test_more_ranks_than_cores(program):
    ranks = cores() + 2
    line = lines(doctor(program, ranks=ranks))["ranks per node"]
    assert line["result"] == "warn" and f"oversubscribed: {ranks} ranks" in line["found"] and "fewer ranks" in line["remedy"]


@pytest.mark.skipif(cores() < 2, reason="needs two cores")
@pytest.mark.skipif(shutil.which("taskset") is None, reason="needs taskset")
def test_ranks_bound_to_one_core(program):
    core = str(min(os.sched_getaffinity(0)))
    line = lines(doctor(program, ranks=2, through=["taskset", "-c", core]))["binding"]
    assert line["result"] == "warn" and "rank 1 must share a core" in line["found"] and "--bind-to core" in line["remedy"]
    assert lines(doctor(program, ranks=2))["binding"]["result"] == "pass"


def test_threads_beyond_the_cores(program):
    for value, text in (("64", "OMP_NUM_THREADS = 64"), ("many", "not a number")):
        line = lines(doctor(program, env={"OMP_NUM_THREADS": value}))["threads"]
        if value == "64" and cores() >= 64:
            continue
        assert line["result"] == "warn" and text in line["found"] and "OMP_NUM_THREADS=" in line["remedy"]


def test_a_variable_of_one_rank_only(program):
    plant = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then export NCCL_DEBUG=WARN; fi; exec "$@"'
    line = lines(doctor(program, ranks=2, through=["bash", "-c", plant, "plant"]))["environment of ranks"]
    assert line["result"] == "warn" and "NCCL_DEBUG" in line["found"] and "mpirun -x" in line["remedy"]


def test_variables_that_harm(program):
    found = lines(doctor(program, env={"CUDA_LAUNCH_BLOCKING": "1", "MKL_VERBOSE": "1", "NCCL_ALGO": "Ring",
                                       "OMPI_MCA_btl": "tcp,self", "NCCL_SECRET_KEY": "hidden"}))
    for name in ("CUDA_LAUNCH_BLOCKING", "MKL_VERBOSE", "NCCL_ALGO", "OMPI_MCA_btl"):
        assert found[name]["result"] == "warn" and "unset" in found[name]["remedy"]
        assert name in found["environment"]["found"]
    assert "hidden" not in json.dumps(found)


def test_odd_file_locking(program):
    line = lines(doctor(program, env={"HDF5_USE_FILE_LOCKING": "no"}))["file locks"]
    assert line["result"] == "warn" and "means nothing to HDF5" in line["found"] and "capitals" in line["remedy"]
    line = lines(doctor(program, env={"HDF5_USE_FILE_LOCKING": "FALSE"}))["file locks"]
    assert line["result"] == "warn" and "unset HDF5_USE_FILE_LOCKING" in line["remedy"]


def test_a_folder_without_locks(program, tmp_path):
    env = preload(tmp_path, "#include <cerrno>\nextern \"C\" int flock(int, int) { errno = ENOLCK; return -1; }\n")
    done = doctor(program, env=env)
    line = lines(done)["file locks"]
    assert done.returncode == 5 and line["result"] == "fail" and "errno 37" in line["found"] and "HDF5_USE_FILE_LOCKING=FALSE" in line["remedy"]
    line = lines(doctor(program, env={**env, "HDF5_USE_FILE_LOCKING": "FALSE"}))["file locks"]
    assert line["result"] == "warn"


def test_a_clock_that_goes_backwards(program, tmp_path):
    env = preload(tmp_path, """#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>
extern "C" int clock_gettime(clockid_t id, timespec* time) noexcept {
  static int calls = 0;
  const long code = syscall(SYS_clock_gettime, id, time);
  if (id == CLOCK_MONOTONIC && ++calls % 97 == 0) time->tv_sec -= 1;
  return static_cast<int>(code);
}
""")
    done = doctor(program, env=env)
    line = lines(done)["clock"]
    assert done.returncode == 5 and line["result"] == "fail" and "backwards" in line["found"] and "tsc" in line["remedy"]


@pytest.mark.parametrize("library, result", [("libhdf5", "fail"), ("libz", "warn")])
def test_two_copies_of_a_library(program, tmp_path, library, result):
    original = mapped(library)
    copy = tmp_path / "other" / original.resolve().name.replace(".so", "-3f2a91bc.so")
    copy.parent.mkdir()
    shutil.copy(original, copy)
    # Under another name inside too, or the loader would take the copy for the original.
    data = copy.read_bytes()
    name = original.name.encode()
    assert data.count(name + b"\0") == 1
    copy.write_bytes(data.replace(name + b"\0", name[:-1] + b"X\0"))
    done = doctor(program, env={"LD_PRELOAD": str(copy)})
    line = lines(done)["duplicate libraries"]
    assert line["result"] == result and str(copy) in line["found"] and "LD_PRELOAD" in line["remedy"]
    assert (done.returncode == 5) == (result == "fail")


def test_folders_that_cannot_be_written(program, tmp_path):
    (tmp_path / "file").write_text("")
    for folder, text in ((tmp_path / "missing", "does not exist"), (tmp_path / "file", "is not a folder"), ("/proc", "")):
        done = doctor(program, "--folder", folder)
        line = lines(done)["output folder"]
        assert done.returncode == 5 and line["result"] == "fail" and text in line["found"] and "--folder" in line["remedy"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
def test_a_folder_of_somebody_else(program, tmp_path):
    # Root without capabilities is like anybody to a folder that is another's.
    locked = tmp_path / "locked"
    locked.mkdir()
    tmp_path.chmod(0o755)
    locked.chmod(0o555)
    dropped = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", "--reuid=0"]
    command = [*dropped, BINARY, "doctor", "--format", "json", "--folder", str(locked)]
    os.chown(locked, 65534, 65534)
    done = subprocess.run(command, cwd=program.folder, capture_output=True, text=True, timeout=60)
    line = lines(done)["output folder"]
    assert done.returncode == 5 and line["result"] == "fail" and "Permission denied" in line["found"]


@pytest.fixture
def mount(tmp_path):
    """Mounts a tmpfs with options in a folder; undone at the end."""
    mounted = []

    def make(*options):
        folder = tmp_path / f"mounted{len(mounted)}"
        folder.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", folder], capture_output=True).returncode != 0:
            pytest.skip("mounting is not allowed here")
        mounted.append(folder)
        return folder

    yield make
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)


def test_a_read_only_folder(program, mount):
    done = doctor(program, "--folder", mount("size=1m", "ro"))
    line = lines(done)["output folder"]
    assert done.returncode == 5 and line["result"] == "fail" and "Read-only" in line["found"]


def test_a_full_folder_in_memory(program, mount):
    folder = mount("size=256k")
    (folder / "filler").write_bytes(bytes(256 * 1024))
    done = doctor(program, "--folder", folder)
    found = lines(done)
    assert done.returncode == 5
    assert found["free space"]["result"] == "fail" and "exit 10" in found["free space"]["remedy"]
    assert found["file system"]["result"] == "warn" and "tmpfs" in found["file system"]["found"]
    assert found["output folder"]["result"] == "fail" and "No space" in found["output folder"]["found"]
    found = lines(doctor(program, "--folder", mount("size=100m")))
    assert found["free space"]["result"] == "warn" and found["output folder"]["result"] == "pass"


def test_an_address_limit(program):
    done = doctor(program, through=["bash", "-c", 'ulimit -v 100000000; exec "$@"', "limit"])
    line = lines(done)["memory"]
    assert done.returncode == 0 and line["result"] == "warn" and "ulimit -v unlimited" in line["remedy"]


def test_a_rank_that_does_not_answer(program):
    done = doctor(program, "--deadline", "2", ranks=2, env={"SHARDMARK_FAULT": "1:comm:0:stop"})
    found = lines(done)
    assert done.returncode == 5 and found["messages"]["result"] == "fail" and "rank 1" in found["messages"]["found"]
    assert found["messages"]["remedy"] and found["SHARDMARK_FAULT"]["result"] == "warn"


def test_bad_usage(program):
    assert doctor(program, "--deadline", "0").returncode == 2
    assert doctor(program, ranks=2, env={"SHARDMARK_FAULT": "nonsense"}).returncode == 2

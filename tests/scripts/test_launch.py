"""launch.sh: which command it makes of a rank count, by launchers that only print what they were asked for."""

import os
import pathlib
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))
MANY_RANKS = "4096"


@pytest.fixture
def launcher(tmp_path):
    def make(version):
        path = tmp_path / "mpirun"
        path.write_text(f'#!/bin/bash\n[[ $1 != --version ]] || {{ echo "{version}"; exit; }}\n'
                        'printf "%s\\n" "$*" "$OMP_NUM_THREADS" "${OMPI_ALLOW_RUN_AS_ROOT:-unset}"\nexit 7\n')
        path.chmod(0o755)
        return path
    return make


def launch(*arguments, **variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SHARDMARK_", "OMPI_", "OMP_", "MPI_"))}
    result = subprocess.run([str(SOURCE / "scripts/launch.sh"), *arguments], text=True, capture_output=True, timeout=60,
                            env={**kept, **variables})
    return result.returncode, result.stdout.splitlines(), result.stderr


def test_open_mpi_gets_its_flags_and_the_exit_code_comes_back(launcher):
    code, lines, _ = launch("1", "program", "--flag", "a b", SHARDMARK_MPIEXEC=str(launcher("mpirun (Open MPI) 4.1.4")))
    assert code == 7
    assert lines == ["-np 1 --oversubscribe --bind-to none program --flag a b", "1", "1"]


def test_ranks_that_fit_may_be_bound_and_others_never(launcher):
    path = str(launcher("mpirun (Open MPI) 4.1.4"))
    assert "--bind-to core" in launch("1", "program", SHARDMARK_MPIEXEC=path, SHARDMARK_BIND="core")[1][0]
    assert "--bind-to none" in launch(MANY_RANKS, "program", SHARDMARK_MPIEXEC=path, SHARDMARK_BIND="core")[1][0]


def test_other_launchers_get_no_flags_of_open_mpi(launcher):
    _, lines, _ = launch("3", "program", SHARDMARK_MPIEXEC=str(launcher("HYDRA build details")), SHARDMARK_MPIEXEC_FLAGS="-l -s 0")
    assert lines == ["-np 3 -l -s 0 program", "1", "unset"]


def test_mpi_home_names_the_launcher(launcher, tmp_path):
    (tmp_path / "bin").mkdir()
    launcher("mpirun (Open MPI) 5.0.1").rename(tmp_path / "bin/mpirun")
    assert launch("1", "program", MPI_HOME=str(tmp_path))[0] == 7


@pytest.mark.parametrize("arguments", [(), ("2",), ("0", "program"), ("two", "program")])
def test_wrong_calls_print_the_usage(arguments):
    code, _, text = launch(*arguments)
    assert code == 2 and "usage:" in text


def test_a_missing_launcher_is_named(tmp_path):
    (tmp_path / "bash").symlink_to("/bin/bash")
    (tmp_path / "env").symlink_to("/usr/bin/env")
    code, _, text = launch("1", "program", PATH=str(tmp_path))
    assert code == 5 and "MPI_HOME" in text

"""Stand-ins for a machine, shared by the tests of set-up: programs that are scripts, a path that has little else, a LibTorch."""

import shutil
import sys

# What set-up's scripts call and every machine has.
SHELL_TOOLS = "bash cat dirname mkdir sort head tail awk grep tr cksum flock mv rm df ls env chmod".split()


def fake(folder, name, script):
    """A program of the path that is a script of ours."""
    path = folder / name
    path.unlink(missing_ok=True)  # it may be a link to the machine's own program, which must not be written through
    path.write_text(f"#!{shutil.which('bash')}\n{script}\n")
    path.chmod(0o755)


def bare_path(folder, more_tools=(), python_flags=""):
    """Fills a folder with shell tools and a Python: no compiler, no MPI."""
    folder.mkdir()
    for name in [*SHELL_TOOLS, *more_tools]:
        (folder / name).symlink_to(shutil.which(name))
    fake(folder, "python3", f'exec "{sys.executable}" {python_flags} "$@"')
    return folder


def small_torch(folder, major, minor):
    """What looks like a LibTorch of this version to a script; returns its CMake folder."""
    cmake = folder / "share/cmake/Torch"
    for part in (cmake, folder / "include/torch/headeronly", folder / "lib"):
        part.mkdir(parents=True)
    (cmake / "TorchConfig.cmake").write_text("")
    (folder / "lib/libtorch_cpu.so").write_text("")
    set_torch_version(folder, major, minor)
    return cmake


def set_torch_version(folder, major, minor):
    (folder / "include/torch/headeronly/version.h").write_text(
        f"#define TORCH_VERSION_MAJOR {major}\n#define TORCH_VERSION_MINOR {minor}\n")

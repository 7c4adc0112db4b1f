"""The thread sanitizer watches what ranks as threads run: preset tsan, program thread_tests. Where the sanitizer cannot run
this is skipped, and ctest says so."""

import os
import pathlib
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))
BUILD = SOURCE / "build-tsan"
COMPILER = os.environ.get("CXX", "c++")
# Two threads write one variable without a lock, unless LOCKED.
PROBE = """
#include <mutex>
#include <thread>
int value = 0;
std::mutex mutex;
void count() {
#ifdef LOCKED
  const std::lock_guard<std::mutex> lock(mutex);
#endif
  ++value;
}
int main() {
  std::thread one(count), two(count);
  one.join();
  two.join();
}
"""


def run(command, **options):
    return subprocess.run([str(word) for word in command], text=True, capture_output=True, **options)


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    """Builds and runs the probe; skips where the sanitizer's runtime is missing or refuses this machine."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.cpp").write_text(PROBE)

    def build(*flags):
        return run([COMPILER, "-std=c++20", "-pthread", *flags, folder / "probe.cpp", "-o", folder / "probe"])

    def build_and_run(*flags):
        built = build("-fsanitize=thread", *flags)
        if built.returncode != 0:
            pytest.skip(f"no thread sanitizer: {COMPILER} -fsanitize=thread fails: {built.stderr.strip()[-200:]}")
        return run([folder / "probe"], timeout=60)

    plain = build()
    assert plain.returncode == 0, plain.stderr
    clean = build_and_run("-DLOCKED")
    if clean.returncode != 0:
        pytest.skip(f"no thread sanitizer: its programs do not run here: {clean.stderr.strip()[-200:]}")
    return build_and_run


def test_the_sanitizer_sees_a_race(probe):
    raced = probe()
    assert raced.returncode != 0 and "data race" in raced.stderr


def test_ranks_as_threads_do_not_race(probe):
    configured = run(["cmake", "--preset", "tsan"], cwd=SOURCE, timeout=300)
    assert configured.returncode == 0, configured.stderr
    built = run(["cmake", "--build", BUILD, "-j", "2", "--target", "thread_tests"], timeout=1200)
    assert built.returncode == 0, built.stdout[-3000:]
    tested = run(["ctest", "--test-dir", BUILD, "-R", "^thread_tests$", "--no-tests=error", "--output-on-failure"], timeout=300)
    assert tested.returncode == 0, tested.stdout[-6000:]

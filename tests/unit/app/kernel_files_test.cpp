// Memory of a node and of its cgroups, from files like the kernel's.

#include "app/kernel_files.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.hpp"

namespace shardmark::app {
namespace {

class KernelFiles : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = root() + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  [[nodiscard]] std::string root() const { return folder_.path().string(); }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(KernelFiles, WithoutThemNothingIsKnown) {
  const auto memory = host_memory(root());
  EXPECT_EQ(memory.total_bytes, -1);
  EXPECT_EQ(memory.free_bytes(), -1);
}

TEST_F(KernelFiles, TheLeastOfTheNodeAndItsCgroupsIsFree) {
  write("/proc/meminfo", "MemTotal:       4000 kB\nMemFree:  100 kB\nMemAvailable:   3000 kB\n");
  EXPECT_EQ(host_memory(root()).total_bytes, 4000 * 1024);
  EXPECT_EQ(host_memory(root()).free_bytes(), 3000 * 1024);
  write("/proc/self/cgroup", "0::/job/step\n");
  write("/sys/fs/cgroup/job/step/memory.max", "max\n");
  EXPECT_EQ(host_memory(root()).free_bytes(), 3000 * 1024);
  write("/sys/fs/cgroup/job/memory.max", "2000000\n");
  write("/sys/fs/cgroup/job/memory.current", "1500000\n");
  write("/sys/fs/cgroup/job/memory.stat", "anon 900000\ninactive_file 400000\n");
  const auto memory = host_memory(root());
  EXPECT_EQ(memory.limit_bytes, 2000000);
  EXPECT_EQ(memory.free_bytes(), 900000) << "files that it could drop count as free";
}

TEST_F(KernelFiles, CgroupsOfVersion1) {
  write("/proc/self/cgroup", "5:cpuset:/\n4:memory:/slurm/job\n");
  write("/sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "1000\n");
  write("/sys/fs/cgroup/memory/slurm/job/memory.usage_in_bytes", "1200\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(host_memory(root()).limit_bytes, 1000);
  EXPECT_EQ(host_memory(root()).free_bytes(), 0);
}

}  // namespace
}  // namespace shardmark::app

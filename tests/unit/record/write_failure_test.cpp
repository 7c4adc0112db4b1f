// What stops a writer: killed, out of space, a folder it may not write in. Nothing whole is lost and the reason is told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "base/fault.hpp"
#include "record/reader.hpp"
#include "record/writer.hpp"
#include "tests/support/child.hpp"
#include "tests/support/record_files.hpp"

namespace shardmark::record {
namespace {

namespace fs = std::filesystem;
using WriteFailure = testing::RecordFiles;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(WriteFailure, KilledWriterLeavesEveryFlushedRow) {
  int flushed[2];
  ASSERT_EQ(pipe(flushed), 0);
  testing::Child run([&] {
    auto writer = open();
    for (std::int64_t block = 0; block < 5; ++block) {
      writer.append_steps(steps(100, 100 * block));
    }
    if (write(flushed[1], "x", 1) == 1) {
      pause();  // alive with the file open, in the middle of its run
    }
  });
  char heard = 0;
  ASSERT_EQ(read(flushed[0], &heard, 1), 1);
  run.kill(SIGKILL);
  EXPECT_EQ(run.wait().signal, SIGKILL);
  const auto record = read_record(path());
  EXPECT_TRUE(record.partial);
  EXPECT_EQ(record.attributes.status, "interrupted");
  EXPECT_EQ(record.config_toml, "[model]\n");
  ASSERT_EQ(record.steps.size(), 500U);
  for (std::int64_t i = 0; i < 500; ++i) {
    EXPECT_EQ(record.steps[static_cast<std::size_t>(i)].step, i);
    EXPECT_EQ(record.steps[static_cast<std::size_t>(i)].loss, 1.0 / static_cast<double>(i + 1));
  }
  close(flushed[0]);
  close(flushed[1]);
}

/// Files of this process may not grow beyond `bytes`: what a full disk looks like without one.
void limit_file_size(rlim_t bytes) {
  const rlimit limit{bytes, bytes};
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
    _exit(99);
  }
}

TEST_F(WriteFailure, NoMoreSpaceIsAnInputOutputErrorAndTheOldRecordStays) {
  write_complete();
  const auto before = testing::read_file(path());
  // At the start, while rows are appended, and when buffers of some hundred kilobytes are written out.
  for (const rlim_t bytes : {rlim_t{1} << 10, rlim_t{32} << 10, rlim_t{64} << 10, rlim_t{300} << 10}) {
    testing::Child run([&] {
      limit_file_size(bytes);
      auto writer = open(true);
      for (std::int64_t block = 0; block < 40; ++block) {
        writer.append_steps(steps(100, 100 * block));
      }
      writer.finish("complete", "", 0);
    });
    const auto end = run.wait();
    EXPECT_EQ(end.exit_code, 10) << bytes << ": signal " << end.signal << " " << end.text;
    EXPECT_THAT(end.text, AllOf(HasSubstr(partial()), HasSubstr("File too large"), HasSubstr("free"))) << bytes;
    EXPECT_EQ(testing::read_file(path()), before) << bytes;
  }
}

TEST_F(WriteFailure, FolderWithoutWritePermission) {
  const fs::path locked = folder_.path() / "locked";
  fs::create_directory(locked);
  fs::permissions(locked, fs::perms(0555));
  fs::permissions(folder_.path(), fs::perms(0755));
  testing::Child run([&] {
    if (geteuid() == 0 && setuid(65534) != 0) {  // root passes permission bits
      _exit(99);
    }
    check_writable((locked / "run.h5").string(), false);
  });
  const auto end = run.wait();
  EXPECT_EQ(end.exit_code, 10) << end.text;
  EXPECT_THAT(end.text, AllOf(HasSubstr(locked.string()), HasSubstr("Permission denied")));
  EXPECT_TRUE(fs::is_empty(locked));
}

#ifdef SM_FAULTS
TEST_F(WriteFailure, ShortWriteIsFoundBeforeTheNameIsGiven) {
  auto faults = base::FaultPlan(base::parse_fault("0:record:1:short-write"));
  faults.set_world_rank(0);
  RecordWriter writer({path(), false, &faults}, {}, "", {});
  writer.append_steps(steps(100));
  EXPECT_THAT([&] { writer.finish("complete", "", 0); }, ::testing::Throws<base::IoError>());
  EXPECT_FALSE(fs::exists(path()));
  EXPECT_TRUE(fs::exists(partial()));
}
#endif

}  // namespace
}  // namespace shardmark::record

// One output path, one live run: a record being written is not taken for a left-over.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "record/file_lock.hpp"
#include "record/reader.hpp"
#include "record/writer.hpp"
#include "tests/support/child.hpp"
#include "tests/support/record_files.hpp"

namespace shardmark::record {
namespace {

namespace fs = std::filesystem;
using Locks = testing::RecordFiles;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

auto says_in_use(const std::string& partial) {
  return AllOf(HasSubstr(partial), HasSubstr("in use"), HasSubstr("output.path"));
}

TEST_F(Locks, SecondWriterIsRefusedAndNothingRenamed) {
  auto first = open();
  first.append_steps(steps(5));
  EXPECT_THAT([&] { static_cast<void>(open(true)); }, ThrowsMessage<base::ConfigError>(says_in_use(partial())));
  EXPECT_THAT([&] { check_writable(path(), false); }, ThrowsMessage<base::ConfigError>(says_in_use(partial())));
  EXPECT_FALSE(fs::exists(partial() + ".1"));
  first.append_steps(steps(5, 5));
  first.finish("complete", "", 0);
  EXPECT_EQ(read_record(path()).steps.size(), 10U);
  EXPECT_NO_THROW(open(true).finish("complete", "", 0)) << "a finished run holds nothing";
}

TEST_F(Locks, SecondWriterIsRefusedAcrossProcesses) {
  auto first = open();
  testing::Child second([&] { static_cast<void>(open(true)); });
  const auto end = second.wait();
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.text, says_in_use(partial()));
  EXPECT_FALSE(fs::exists(partial() + ".1"));
}

TEST_F(Locks, ChildrenOfTheWriterDoNotKeepTheFile) {
  int flushed[2];
  ASSERT_EQ(pipe(flushed), 0);
  testing::Child run([&] {
    auto writer = open();
    const pid_t helper = fork();
    if (helper == 0) {
      execlp("sleep", "sleep", "60", nullptr);
    }
    // vfork-like: the helper has the file open until it has become another program.
    const std::string program = "/proc/" + std::to_string(helper) + "/comm";
    while (testing::read_file(program) != "sleep\n") {
    }
    if (write(flushed[1], &helper, sizeof helper) == sizeof helper) {
      pause();
    }
  });
  pid_t helper = 0;
  ASSERT_EQ(read(flushed[0], &helper, sizeof helper), static_cast<ssize_t>(sizeof helper));
  EXPECT_THROW(check_writable(path(), false), base::ConfigError);
  run.kill(SIGKILL);
  static_cast<void>(run.wait());
  EXPECT_NO_THROW(check_writable(path(), false)) << "the helper lives, the writer does not";
  kill(helper, SIGKILL);
  close(flushed[0]);
  close(flushed[1]);
}

TEST_F(Locks, AFileThatTookTheNameIsNotGivenTheFinalOne) {
  auto first = open();
  first.append_steps(steps(5));
  fs::rename(partial(), folder_.file("elsewhere"));
  {
    auto other = open();  // a whole record with as many rows: only its being another file tells
    other.append_steps(steps(5));
  }
  EXPECT_THROW(first.finish("complete", "", 0), base::IoError);
  EXPECT_FALSE(fs::exists(path()));
  EXPECT_TRUE(fs::exists(partial()));
}

TEST(FileLock, SharedStillKeepsOthersOut) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.file("x");
  testing::write_file(file, "x");
  FileLock mine;
  FileLock other;
  EXPECT_EQ(mine.take_at(file), FileLock::Result::held);
  EXPECT_EQ(other.take_at(file), FileLock::Result::in_use);
  mine.share();
  EXPECT_EQ(other.take_at(file), FileLock::Result::in_use);
  EXPECT_TRUE(is_locked(file));
  mine.release();
  EXPECT_FALSE(is_locked(file));
  EXPECT_EQ(other.take_at(file), FileLock::Result::held);
  EXPECT_EQ(mine.take_at(folder.file("none")), FileLock::Result::no_file);
}

TEST_F(Locks, AbandonedRecordIsALeftOver) {
  auto first = open();
  first.append_steps(steps(5));
  first.abandon();
  auto second = open();
  EXPECT_EQ(read_record(partial() + ".1").steps.size(), 5U);
}

TEST_F(Locks, RecordOfAKilledRunIsALeftOver) {
  for (const char* number : {".1", ".2", ".3"}) {
    testing::Child run([&] {
      auto writer = open();
      writer.append_steps(steps(7));
      raise(SIGKILL);
    });
    EXPECT_EQ(run.wait().signal, SIGKILL);
    EXPECT_NO_THROW(check_writable(path(), false));
    { auto next = open(); }
    EXPECT_EQ(read_record(partial() + number).steps.size(), 7U);
    fs::remove(partial());
  }
}

}  // namespace
}  // namespace shardmark::record

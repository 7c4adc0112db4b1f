// A file system without locks, as some network file systems are: the run goes on and says what is not guarded.
// The C library's fcntl is replaced in this test program; it answers as such a file system while `no_locks` says so.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "record/reader.hpp"
#include "record/writer.hpp"
#include "tests/support/record_files.hpp"

namespace {
int no_locks = 0;  // the errno it answers; 0: locks work
}

extern "C" int fcntl(int descriptor, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (no_locks != 0 && (command == F_OFD_SETLK || command == F_OFD_GETLK)) {
    errno = no_locks;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fcntl, descriptor, command, argument));
}

namespace shardmark::record {
namespace {

class NoLocks : public testing::RecordFiles {
 protected:
  ~NoLocks() override { no_locks = 0; }
};

TEST_F(NoLocks, RunGoesOnWithAWarning) {
  for (const int code : {ENOLCK, EOPNOTSUPP, ENOSYS, EINVAL, 524}) {
    no_locks = code;
    ::testing::internal::CaptureStderr();
    std::optional<RecordWriter> writer;
    EXPECT_NO_THROW(writer.emplace(WriterOptions{path(), true, nullptr}, RunAttributes{}, "", std::vector<ConfigKeyRow>{}))
        << code;
    const std::string said = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(writer) << code;
    EXPECT_THAT(said, ::testing::AllOf(::testing::HasSubstr("warning"), ::testing::HasSubstr(partial()),
                                       ::testing::HasSubstr("no locks"), ::testing::HasSubstr("output.path")));
    EXPECT_EQ(said.find("warning"), said.rfind("warning")) << "said once";
    writer->append_steps(steps(5));
    writer->finish("complete", "", 0);
    EXPECT_EQ(read_record(path()).steps.size(), 5U);
  }
}

TEST_F(NoLocks, LeftOverIsStillKept) {
  {
    auto writer = open();
    writer.append_steps(steps(5));
  }
  no_locks = ENOLCK;
  { auto writer = open(); }
  EXPECT_EQ(read_record(partial() + ".1").steps.size(), 5U);
}

TEST_F(NoLocks, NothingIsSaidWhereLocksWork) {
  ::testing::internal::CaptureStderr();
  { auto writer = open(); }
  { auto writer = open(); }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(NoLocks, AnotherFailureIsAnError) {
  no_locks = EIO;
  EXPECT_THROW(static_cast<void>(open()), base::IoError);
}

}  // namespace
}  // namespace shardmark::record

// Versions of NCCL: how they read, and what is said when header and library differ.

#include "comm/nccl_version.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace shardmark::comm {
namespace {

using testing::HasSubstr;

TEST(NcclVersion, ReadsBothFormsOfTheCode) {
  EXPECT_EQ(nccl_version_text(23007), "2.30.7");
  EXPECT_EQ(nccl_version_text(20900), "2.9.0");
  EXPECT_EQ(nccl_version_text(22812), "2.28.12");
  EXPECT_EQ(nccl_version_text(2804), "2.8.4");  // NCCL_VERSION(2, 8, 4): the last of the short form
  EXPECT_EQ(nccl_version_text(0), "");
}

TEST(NcclVersion, EqualOnesAndNoneAreRight) {
  EXPECT_EQ(nccl_mismatch({23007, 23007, "/a/nccl.h", "/b/libnccl.so.2"}), "");
  EXPECT_EQ(nccl_mismatch({0, 0, "", ""}), "");
}

TEST(NcclVersion, AMixNamesBothVersionsPathsAndTheRemedy) {
  const auto text = nccl_mismatch({23007, 22812, "/a/nccl.h", "/b/libnccl.so.2"});
  EXPECT_THAT(text, HasSubstr("compiled against NCCL 2.30.7 (/a/nccl.h)"));
  EXPECT_THAT(text, HasSubstr("loaded is 2.28.12 (/b/libnccl.so.2)"));
  EXPECT_THAT(text, HasSubstr("LD_LIBRARY_PATH"));
  EXPECT_NE(nccl_mismatch({23007, 23006, "", ""}), "") << "a patch release may differ too";
  EXPECT_THAT(nccl_mismatch({23007, 0, "/a/nccl.h", ""}), HasSubstr("loaded is none"));
}

TEST(NcclVersion, ThisProgramRunsWithWhatItWasCompiledAgainst) {
  const auto versions = nccl_versions();
  EXPECT_EQ(versions.built, versions.loaded);
  EXPECT_EQ(versions.built != 0, !versions.library.empty());
  EXPECT_NO_THROW(check_nccl_version());
}

}  // namespace
}  // namespace shardmark::comm

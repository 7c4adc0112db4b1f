// Helpers on texts.

#include "base/text.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace shardmark::base {
namespace {

TEST(Text, BytesAre1024Based) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(7), "7 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(1024.0 * 1024), "1.00 MiB");
  EXPECT_EQ(format_bytes(1.5 * 1024 * 1024 * 1024), "1.50 GiB");
  EXPECT_EQ(format_bytes(2.0 * 1024 * 1024 * 1024 * 1024), "2.00 TiB");
  EXPECT_EQ(format_bytes(4096.0 * 1024 * 1024 * 1024 * 1024), "4096.00 TiB") << "there is no larger unit";
  EXPECT_EQ(format_bytes(-2048), "-2.00 KiB");
}

TEST(Text, CountsInGroups) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-999), "-999");
  EXPECT_EQ(format_count(-1000), "-1,000");
  EXPECT_EQ(format_count(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Text, Join) {
  EXPECT_EQ(join({}, ", "), "");
  EXPECT_EQ(join({"a"}, ", "), "a");
  EXPECT_EQ(join({"a", "", "c"}, ", "), "a, , c");
}

TEST(Text, ClosestName) {
  const std::vector<std::string> known{"optimizer.lr", "optimizer.name", "data.seed"};
  EXPECT_EQ(closest_name("optimiser.lr", known), "optimizer.lr");
  EXPECT_EQ(closest_name("data.sed", known), "data.seed");
  EXPECT_EQ(closest_name("data.seed", known), "data.seed");
  EXPECT_EQ(closest_name("zzz", known), "") << "nothing is near";
  EXPECT_EQ(closest_name("x", {}), "");
  EXPECT_EQ(closest_name("ab", {"abcd", "abc"}), "abc") << "the nearest, not the first";
  EXPECT_EQ(closest_name("ac", {"ab", "ad"}), "ab") << "the first of equals";
}

}  // namespace
}  // namespace shardmark::base

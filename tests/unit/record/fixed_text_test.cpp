// Texts of fixed size: what does not fit is cut between characters, so that readers never meet half of one.

#include <gtest/gtest.h>

#include <string>

#include "record/rows.hpp"

namespace shardmark::record {
namespace {

TEST(FixedText, KeepsWhatFits) {
  EXPECT_EQ(FixedText<8>("1234567").str(), "1234567");
  EXPECT_EQ(FixedText<8>("12345678").str(), "1234567");
  EXPECT_EQ(FixedText<8>("").str(), "");
  EXPECT_EQ(FixedText<8>(std::string_view{}).str(), "");
}

TEST(FixedText, CutsBetweenCharacters) {
  // Characters of 2, 3 and 4 bytes; 7 bytes of room.
  EXPECT_EQ(FixedText<8>("123456\u00e9").str(), "123456");
  EXPECT_EQ(FixedText<8>("12345\u00e9").str(), "12345\u00e9");
  EXPECT_EQ(FixedText<8>("12345\u20ac").str(), "12345");
  EXPECT_EQ(FixedText<8>("1234\u20ac").str(), "1234\u20ac");
  for (const std::string head : {"1234", "12345", "123456"}) {
    EXPECT_EQ(FixedText<8>(head + "\U0001F600").str(), head);
  }
  EXPECT_EQ(FixedText<8>("123\U0001F600").str(), "123\U0001F600");
}

TEST(FixedText, TextThatIsNoUtf8IsCutAtItsBytes) {
  EXPECT_EQ(FixedText<8>(std::string(20, '\xa9')).str(), std::string(7, '\xa9'));
}

TEST(FixedText, LeavesNothingBehindTheText) {
  const FixedText<8> cut("12345\u20ac");
  for (std::size_t i = 5; i < 8; ++i) {
    EXPECT_EQ(cut.data[i], '\0') << i;
  }
}

}  // namespace
}  // namespace shardmark::record

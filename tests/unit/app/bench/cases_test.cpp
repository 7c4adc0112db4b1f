// Sizes, factors and statistics of collective benchmarks, and what is accepted of their options.

#include "app/bench/cases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.hpp"

namespace shardmark::app::bench {
namespace {

using base::DType;
using comm::Operation;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BusFactor, IsThatOfNcclTests) {
  // NVIDIA/nccl-tests doc/PERFORMANCE.md, summary, n = 4.
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::send_receive, 4), 1);
  EXPECT_TRUE(std::isnan(bus_factor(Operation::barrier, 4)));
  for (const auto operation : {Operation::all_reduce, Operation::all_gather, Operation::broadcast, Operation::send_receive}) {
    EXPECT_TRUE(std::isnan(bus_factor(operation, 1))) << "one rank sends nothing";
  }
}

TEST(MessageCount, IsNotAboveTheSizeButOneElementAPartAtLeast) {
  EXPECT_EQ(message_count(Operation::all_reduce, 8, DType::fp32, 3), 2);
  EXPECT_EQ(message_count(Operation::all_reduce, 11, DType::fp32, 3), 2);
  EXPECT_EQ(message_count(Operation::broadcast, 1, DType::fp64, 3), 1);
  EXPECT_EQ(message_count(Operation::send_receive, 8, DType::uint8, 3), 8);
  for (const auto operation : {Operation::reduce_scatter, Operation::all_gather, Operation::all_to_all}) {
    EXPECT_EQ(message_count(operation, 8, DType::fp32, 3), 3);
    EXPECT_EQ(message_count(operation, 23, DType::fp32, 3), 3);
    EXPECT_EQ(message_count(operation, 24, DType::fp32, 3), 6);
  }
}

TEST(Cases, NoneTwiceWhereSmallSizesRoundUpToOne) {
  CommOptions options;
  options.operations = {Operation::all_gather};
  options.dtypes = {DType::fp64};
  options.reductions = {comm::Reduction::sum, comm::Reduction::max};
  options.in_place = false;
  options.max_bytes = 2048;
  std::vector<std::int64_t> counts;
  for (const auto& one : make_cases(options, 64)) {  // 8, 32, 128 and 512 bytes are all 64 elements
    EXPECT_EQ(one.in_place, 0);
    counts.push_back(one.count);
  }
  EXPECT_THAT(counts, ElementsAre(64, 256));
}

std::vector<std::int64_t> sizes_of(Operation operation, std::int64_t max_bytes, int ranks) {
  CommOptions options;
  options.operations = {operation};
  options.dtypes = {DType::fp32};
  options.reductions = {comm::Reduction::sum};
  options.in_place = false;
  options.max_bytes = max_bytes;
  std::vector<std::int64_t> sizes;
  for (const auto& one : make_cases(options, ranks)) {
    sizes.push_back(one.message_bytes());
  }
  return sizes;
}

TEST(Cases, EndWithTheLargestSizeAndNoneIsAboveIt) {
  EXPECT_THAT(sizes_of(Operation::all_reduce, 128, 2), ElementsAre(8, 32, 128));
  EXPECT_THAT(sizes_of(Operation::all_reduce, 100, 2), ElementsAre(8, 32, 100));
  EXPECT_EQ(sizes_of(Operation::broadcast, 16 << 20, 2).back(), 16 << 20) << "8 x 4^k misses it";
  EXPECT_THAT(sizes_of(Operation::all_gather, 100, 3), ElementsAre(12, 24, 96)) << "100 bytes cannot be parted among 3";
  EXPECT_THAT(sizes_of(Operation::all_reduce, 8, 2), ElementsAre(8));
}

TEST(Cases, OperationsWhoseLeastMessageIsLargerAreRefused) {
  EXPECT_THAT(
      [] { static_cast<void>(sizes_of(Operation::all_to_all, 8, 3)); },
      ::testing::ThrowsMessage<base::ConfigError>(HasSubstr("--max 8: all_to_all of fp32 over 3 ranks has 12 bytes at least")));
}

TEST(Cases, TheLargestSizeOfAllDoesNotOverflow) {
  CommOptions options;
  options.operations = {Operation::broadcast};
  options.dtypes = {DType::uint8};
  options.min_bytes = std::int64_t{1} << 61;
  options.max_bytes = std::int64_t{1} << 62;
  options.factor = 1'000'000;
  const auto cases = make_cases(options, 2);
  ASSERT_EQ(cases.size(), 2U);
  EXPECT_EQ(cases.back().message_bytes(), options.max_bytes);
}

TEST(Iterations, ByDefaultFallWithTheSize) {
  EXPECT_EQ(default_iterations(0), 200);
  EXPECT_EQ(default_iterations(std::int64_t{1} << 20), 128);
  EXPECT_EQ(default_iterations(std::int64_t{1} << 30), 20);
}

TEST(Statistics, OfTheSlowestRankByIteration) {
  EXPECT_THAT(slowest({{1, 5, 3}, {2, 4, 9}}), ElementsAre(2, 5, 9));
  EXPECT_THROW(static_cast<void>(slowest({{1, 2}, {1}})), base::InvariantError);
  const auto even = summarise({4, 1, 3, 2});
  EXPECT_EQ(even.p50_s, 2.5);
  EXPECT_EQ(even.p99_s, 4);
  EXPECT_EQ(even.min_s, 1);
  EXPECT_EQ(even.mean_s, 2.5);
  std::vector<double> many(200);
  std::iota(many.rbegin(), many.rend(), 1.0);  // 1 to 200: 198 of them are at most 198
  EXPECT_EQ(summarise(many).p99_s, 198);
  EXPECT_EQ(summarise(many).p50_s, 100.5);
  EXPECT_EQ(summarise({7}).p50_s, 7);
}

CommOptions with(const std::string& min, const std::string& max) {
  CommArguments arguments;
  arguments.min_size = min;
  arguments.max_size = max;
  return parse_options(arguments);
}

TEST(Options, SizesHaveSuffixes) {
  EXPECT_EQ(with("1", "3K").max_bytes, 3072);
  EXPECT_EQ(with("2M", "1G").min_bytes, 2 << 20);
  EXPECT_EQ(with("2M", "1G").max_bytes, 1 << 30);
  EXPECT_EQ(with("1k", "1MiB").min_bytes, 1024);
  EXPECT_EQ(with("1k", "1MiB").max_bytes, 1 << 20);
  EXPECT_EQ(with("1KiB", "2g").max_bytes, std::int64_t{2} << 30);
  EXPECT_EQ(with("2kib", "3MIB").min_bytes, 2048);
  EXPECT_EQ(with("2kib", "3MIB").max_bytes, 3 << 20);
  for (const auto* text : {"1KB", "5GB", "2mb"}) {
    EXPECT_THAT([&] { static_cast<void>(with("1", text)); },
                ::testing::ThrowsMessage<base::ConfigError>(HasSubstr("KB, MB and GB are 1000-based elsewhere")))
        << text;
  }
  for (const auto* text : {"K", "1KiBs", "1iB", "1kix", "1kxb", "1ki", "1T", "-1", "1.5M", "0", " 1", "9223372036854775807K"}) {
    EXPECT_THAT([&] { static_cast<void>(with("1", text)); },
                ::testing::ThrowsMessage<base::ConfigError>(HasSubstr("accepted are bytes from 1 up")))
        << text;
  }
}

TEST(Options, ChooseEachOnceAndAllByAll) {
  CommArguments arguments;
  arguments.operations = {"barrier", "all_reduce", "barrier"};
  EXPECT_THAT(parse_options(arguments).operations, ElementsAre(Operation::barrier, Operation::all_reduce));
  arguments.operations = {"all"};
  EXPECT_EQ(parse_options(arguments).operations.size(), 7U);
  EXPECT_NE(to_toml(parse_options(arguments)).find("dtypes = [\"fp32\"]"), std::string::npos);
}

TEST(Options, PairsRefusesWhatItHasNoUseFor) {
  CommArguments arguments;
  arguments.pairs = true;
  arguments.max_size = "4";
  EXPECT_TRUE(parse_options(arguments).pairs);
  arguments.dtypes = {"bf16"};
  arguments.reductions = {"max"};
  EXPECT_NO_THROW(static_cast<void>(parse_options(arguments)));
  arguments.operations = {"all"};
  arguments.dtypes = {"fp32", "bf16"};
  arguments.reductions = {"sum", "max"};
  arguments.group = "world";
  arguments.min_size = "8";
  arguments.factor = "4";
  arguments.in_place = true;
  try {
    static_cast<void>(parse_options(arguments));
    FAIL() << "nothing was refused";
  } catch (const base::ConfigError& error) {
    EXPECT_THAT(error.problems(),
                ElementsAre(HasSubstr("--op"), HasSubstr("--group"), HasSubstr("--min"), HasSubstr("--factor"),
                            HasSubstr("--dtype"), HasSubstr("--reduction"), HasSubstr("--in-place")));
  }
}

TEST(Options, StandForTheKeysThatErrorsName) {
  EXPECT_EQ(in_terms_of_options("Raise comm.deadline_s if the wait is meant"), "Raise --deadline if the wait is meant");
  EXPECT_EQ(in_terms_of_options("comm.init_deadline_s"), "--deadline");
  EXPECT_EQ(in_terms_of_options("output.path = \"a.h5\" exists: choose another name, or set output.overwrite = true"),
            "-o a.h5 exists: choose another name, or give --overwrite");
  EXPECT_EQ(in_terms_of_options("comm.backend = \"nccl\": no"), "--backend nccl: no");
}

TEST(Options, EveryProblemIsNamed) {
  CommArguments arguments;
  arguments.operations = {"all_reduce", "gather", "scatter"};
  arguments.factor = "two";
  arguments.format = "xml";
  try {
    static_cast<void>(parse_options(arguments));
    FAIL() << "nothing was refused";
  } catch (const base::ConfigError& error) {
    EXPECT_THAT(error.problems(), ElementsAre(HasSubstr("--op gather"), HasSubstr("--op scatter"), HasSubstr("--factor two"),
                                              HasSubstr("--format xml")));
  }
}

}  // namespace
}  // namespace shardmark::app::bench

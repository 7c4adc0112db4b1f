// The judge of all parity tests: planted differences just inside and just outside of each bound, and single flipped bits.

#include "train/proof.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace shardmark::train {
namespace {

CellResult result() {
  CellResult cell;
  cell.losses = {2.0, 1.0};
  cell.grad_norms = {5.0, 4.0};
  cell.gradients = {{"weight", torch::tensor({3.0F, 0.0F})}, {"bias", torch::tensor({4.0F})}};
  cell.parameters = {{"weight", torch::tensor({1.0F, 2.0F})}, {"bias", torch::tensor({-1.0F})}};
  return cell;
}

CellResult copy(const CellResult& from) {
  CellResult cell = from;
  for (auto* tensors : {&cell.gradients, &cell.parameters}) {
    for (auto& tensor : *tensors) {
      tensor.values = tensor.values.clone();
    }
  }
  return cell;
}

Check named(const std::vector<Check>& checks, const std::string& start) {
  const auto found = std::ranges::find_if(checks, [&](const Check& check) { return check.name.starts_with(start); });
  EXPECT_NE(found, checks.end()) << start;
  return *found;
}

bool all_passed(const std::vector<Check>& checks) {
  return std::ranges::all_of(checks, &Check::passed);
}

TEST(Bounds, TheLeastToleranceWhereOneRankAgreesWithItself) {
  const CellResult whole = result();
  const Bounds bounds(whole, {result()});
  EXPECT_TRUE(all_passed(bounds.compare(result())));
  // 2e-6 for scalars; values next to it on both sides.
  for (const auto& [factor, passes] : {std::pair{1.9e-6, true}, {2.1e-6, false}, {-2.1e-6, false}}) {
    CellResult found = copy(whole);
    found.losses[0] *= 1 + factor;
    EXPECT_EQ(named(bounds.compare(found), "loss of step 0").passed, passes) << factor;
    found = copy(whole);
    found.losses[1] *= 1 + factor;
    EXPECT_EQ(named(bounds.compare(found), "loss of step 1").passed, passes) << factor;
    found = copy(whole);
    found.grad_norms[0] *= 1 + factor;
    EXPECT_EQ(named(bounds.compare(found), "gradient norm").passed, passes) << factor;
  }
  // 2e-5 for gradient tensors, relative L2: the smaller tensor is the one named.
  for (const auto& [distance, passes] : {std::pair{1.9e-5F, true}, {2.1e-5F, false}}) {
    CellResult found = copy(whole);
    found.gradients[0].values[1] = 3.0F * distance;
    const auto checks = bounds.compare(found);
    EXPECT_EQ(named(checks, "gradient weight").passed, passes) << distance;
  }
}

TEST(Bounds, TwentySpreadsWhereOneRankDisagreesWithItself) {
  const CellResult whole = result();
  CellResult other = copy(whole);
  other.losses[0] *= 1 + 1e-5;
  other.gradients[1].values[0] = 4.0F * (1 + 1e-3F);
  const Bounds bounds(whole, {result(), other});
  CellResult found = copy(whole);
  found.losses[0] *= 1 + 19e-5;
  found.gradients[1].values[0] = 4.0F * (1 + 19e-3F);
  EXPECT_TRUE(all_passed(bounds.compare(found)));
  found.losses[0] = 2.0 * (1 + 21e-5);
  EXPECT_FALSE(named(bounds.compare(found), "loss of step 0").passed);
  found = copy(whole);
  found.gradients[1].values[0] = 4.0F * (1 + 21e-3F);
  EXPECT_FALSE(named(bounds.compare(found), "gradient bias").passed);
  found = copy(whole);
  found.losses[1] *= 1 + 3e-6;
  EXPECT_FALSE(named(bounds.compare(found), "loss of step 1").passed) << "one quantity's spread widens no other's bound";
}

TEST(Bounds, NaNIsWithinNothing) {
  const CellResult whole = result();
  const Bounds bounds(whole, {result()});
  CellResult found = copy(whole);
  found.losses[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(named(bounds.compare(found), "loss of step 0").passed);
  found = copy(whole);
  found.gradients[0].values[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(all_passed(bounds.compare(found)));
}

TEST(Bounds, OtherStepsOrOtherTensorsAreRefused) {
  const CellResult whole = result();
  const Bounds bounds(whole, {result()});
  CellResult found = copy(whole);
  found.losses.pop_back();
  EXPECT_THROW(static_cast<void>(bounds.compare(found)), base::InvariantError);
  found = copy(whole);
  found.gradients[0].name = "another";
  EXPECT_THROW(static_cast<void>(bounds.compare(found)), base::InvariantError);
}

TEST(Bits, OneBitIsSeenAnywhere) {
  const CellResult expected = result();
  EXPECT_TRUE(all_passed(compare_bits(expected, copy(expected))));
  CellResult found = copy(expected);
  found.losses[1] = std::nextafter(found.losses[1], 2.0);
  EXPECT_FALSE(named(compare_bits(expected, found), "bits of losses").passed);
  found = copy(expected);
  found.grad_norms[1] = std::nextafter(found.grad_norms[1], 9.0);
  EXPECT_FALSE(named(compare_bits(expected, found), "bits of gradient norms").passed);
  for (const bool gradients : {true, false}) {
    found = copy(expected);
    auto& values = (gradients ? found.gradients : found.parameters)[1].values;
    values[0] = std::nextafter(values[0].item<float>(), 9.0F);
    const Check check = named(compare_bits(expected, found), gradients ? "bits of gradients" : "bits of parameters");
    EXPECT_FALSE(check.passed);
    EXPECT_EQ(check.found, 1);
    EXPECT_NE(check.name.find("first: bias"), std::string::npos) << check.name;
  }
  found = copy(expected);
  found.gradients[0].values[1] = -0.0F;
  EXPECT_FALSE(named(compare_bits(expected, found), "bits of gradients").passed) << "zeros of two signs are two values";
  found = copy(expected);
  found.parameters.pop_back();
  EXPECT_FALSE(named(compare_bits(expected, found), "bits of parameters").passed);
}

}  // namespace
}  // namespace shardmark::train

#include "train/proof.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.hpp"

namespace shardmark::train {
namespace {

constexpr double kSpreads = 20;
constexpr double kLeastScalar = 2e-6;
constexpr double kLeastTensor = 2e-5;

double relative(double found, double expected) {
  return found == expected ? 0 : std::abs(found - expected) / std::max(std::abs(expected), 1e-300);
}

double norm_of(const torch::Tensor& values) {
  return values.to(at::kDouble).norm().item<double>();
}

/// Relative L2 distance of each tensor. One that is zero in `expected` is measured against the whole gradient.
std::vector<double> distances(const CellResult& found, const CellResult& expected) {
  SM_CHECK(found.gradients.size() == expected.gradients.size(), "runs of different models are compared");
  std::vector<double> norms;
  double whole = 0;
  for (const auto& tensor : expected.gradients) {
    norms.push_back(norm_of(tensor.values));
    whole += norms.back() * norms.back();
  }
  std::vector<double> result;
  for (std::size_t i = 0; i < norms.size(); ++i) {
    SM_CHECK(found.gradients[i].name == expected.gradients[i].name, "runs of different models are compared");
    const double distance = norm_of(found.gradients[i].values.to(at::kDouble) - expected.gradients[i].values.to(at::kDouble));
    const double scale = norms[i] > 0 ? norms[i] : std::sqrt(whole);
    result.push_back(distance == 0 ? 0 : distance / scale);
  }
  return result;
}

/// Relative L2 distance of all gradients as one vector.
double whole_distance(const CellResult& found, const CellResult& expected) {
  double apart = 0;
  double whole = 0;
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    const auto& reference = expected.gradients[i].values;
    apart += std::pow(norm_of(found.gradients[i].values.to(at::kDouble) - reference.to(at::kDouble)), 2);
    whole += std::pow(norm_of(reference), 2);
  }
  return apart == 0 ? 0 : std::sqrt(apart / whole);
}

Check within(std::string name, double found, double tolerance) {
  // NaN is not within anything.
  return {std::move(name), 0, found, tolerance, found <= tolerance};
}

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

Check count_differences(const std::string& name, const std::vector<double>& expected, const std::vector<double>& found) {
  double differ = std::abs(static_cast<double>(expected.size()) - static_cast<double>(found.size()));
  for (std::size_t i = 0; i < std::min(expected.size(), found.size()); ++i) {
    differ += same_bits(expected[i], found[i]) ? 0 : 1;
  }
  return within(name, differ, 0);
}

Check count_differences(const std::string& name, const std::vector<parallel::NamedTensor>& expected,
                        const std::vector<parallel::NamedTensor>& found) {
  double differ = std::abs(static_cast<double>(expected.size()) - static_cast<double>(found.size()));
  std::string first;
  for (std::size_t i = 0; i < std::min(expected.size(), found.size()); ++i) {
    if (expected[i].name != found[i].name || !same_bits(expected[i].values, found[i].values)) {
      differ += 1;
      first = first.empty() ? " (first: " + expected[i].name + ")" : first;
    }
  }
  return within(name + first, differ, 0);
}

}  // namespace

Bounds::Bounds(const CellResult& whole, const std::vector<CellResult>& others)
    : whole_(whole),
      loss_(kLeastScalar),
      norm_(kLeastScalar),
      last_loss_(kLeastScalar),
      gradients_(whole.gradients.size(), kLeastTensor) {
  const auto widen = [](double& bound, double distance) { bound = std::max(bound, kSpreads * distance); };
  for (const auto& other : others) {
    SM_CHECK(!whole.losses.empty() && whole.losses.size() == other.losses.size(), "proofs need the same steps on both sides");
    widen(loss_, relative(other.losses.front(), whole.losses.front()));
    widen(norm_, relative(other.grad_norms.front(), whole.grad_norms.front()));
    widen(norm_, whole_distance(other, whole));
    widen(last_loss_, relative(other.losses.back(), whole.losses.back()));
    const auto distance = distances(other, whole);
    for (std::size_t i = 0; i < distance.size(); ++i) {
      widen(gradients_[i], distance[i]);
    }
  }
}

std::vector<Check> Bounds::compare(const CellResult& found) const {
  SM_CHECK(found.losses.size() == whole_.losses.size(), "proofs need the same steps on both sides");
  std::vector<Check> checks;
  checks.push_back(within("loss of step 0", relative(found.losses.front(), whole_.losses.front()), loss_));
  checks.push_back(within("gradient norm of step 0", relative(found.grad_norms.front(), whole_.grad_norms.front()), norm_));
  checks.push_back(within(fmt::format("loss of step {}", found.losses.size() - 1),
                          relative(found.losses.back(), whole_.losses.back()), last_loss_));
  const auto distance = distances(found, whole_);
  std::size_t worst = 0;
  for (std::size_t i = 1; i < distance.size() && !std::isnan(distance[worst]); ++i) {
    if (!(distance[i] / gradients_[i] <= distance[worst] / gradients_[worst])) {
      worst = i;  // a NaN is the worst there is
    }
  }
  if (!distance.empty()) {
    checks.push_back(within("gradient " + whole_.gradients[worst].name, distance[worst], gradients_[worst]));
  }
  return checks;
}

std::vector<Check> compare_bits(const CellResult& expected, const CellResult& found) {
  return {count_differences("bits of losses", expected.losses, found.losses),
          count_differences("bits of gradient norms", expected.grad_norms, found.grad_norms),
          count_differences("bits of gradients", expected.gradients, found.gradients),
          count_differences("bits of parameters", expected.parameters, found.parameters)};
}

}  // namespace shardmark::train

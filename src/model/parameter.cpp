#include "model/parameter.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"

namespace shardmark::model {

void fill_initial(std::span<float> out, const Init& init, std::uint64_t seed, std::string_view name, std::int64_t first) {
  const base::RandomStream stream(seed, name);
  const auto start = static_cast<std::uint64_t>(first);
  switch (init.kind) {
    case Init::Kind::uniform: {
      const auto low = static_cast<float>(init.a);
      const auto width = static_cast<float>(init.b - init.a);
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = low + width * stream.uniform(start + i);
      }
      break;
    }
    case Init::Kind::normal:
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = static_cast<float>(init.a + init.b * static_cast<double>(stream.normal(start + i)));
      }
      break;
    case Init::Kind::constant: std::ranges::fill(out, static_cast<float>(init.a)); break;
  }
}

std::int64_t Parameter::numel() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Parameter& ParameterList::add(std::string name, std::vector<std::int64_t> shape, Init init) {
  SM_CHECK(std::ranges::none_of(parameters_, [&](const Parameter& p) { return p.name == name; }),
           "parameter name taken: " + name);
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = std::move(shape);
  parameter.init = init;
  parameter.unit = current_unit();
  return parameters_.emplace_back(std::move(parameter));
}

NamedBuffer& ParameterList::add_buffer(std::string name, torch::Tensor value, bool changes_by_rank) {
  return buffers_.emplace_back(NamedBuffer{std::move(name), std::move(value), changes_by_rank});
}

std::int64_t ParameterList::begin_unit(std::string name) {
  units_.push_back(std::move(name));
  return current_unit();
}

std::int64_t ParameterList::numel() const {
  return std::transform_reduce(parameters_.begin(), parameters_.end(), std::int64_t{0}, std::plus<>(),
                               [](const Parameter& p) { return p.numel(); });
}

std::int64_t ParameterList::trainable_numel() const {
  return std::transform_reduce(parameters_.begin(), parameters_.end(), std::int64_t{0}, std::plus<>(),
                               [](const Parameter& p) { return p.trainable ? p.numel() : 0; });
}

}  // namespace shardmark::model

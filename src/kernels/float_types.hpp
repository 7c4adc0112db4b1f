#pragma once
// From a type named at run time to the C++ type, for kernels whose buffers are fp32 or bf16.

#include <string>
#include <utility>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "kernels/element.hpp"
#include "kernels/update_range.hpp"

namespace shardmark::kernels {

/// Calls `body` with a value of the type; `what` names the buffer in the error if it is neither fp32 nor bf16.
template <typename Body>
decltype(auto) with_float_type(base::DType type, const char* what, Body&& body) {
  SM_CHECK(type == base::DType::fp32 || type == base::DType::bf16,
           std::string(what) + " must be fp32 or bf16, not " + std::string(base::name_of(type)));
  return type == base::DType::fp32 ? std::forward<Body>(body)(float{}) : std::forward<Body>(body)(Bf16{});
}

/// Calls `body` with values of the types of a range's parameters and gradients.
template <typename Body>
void with_range_types(const UpdateRange& range, Body&& body) {
  if (range.working != nullptr) {
    with_float_type(range.working_type, "working parameters", [](auto /*zero*/) {});
  }
  with_float_type(range.parameters_type, "parameters", [&](auto parameter) {
    with_float_type(range.gradients_type, "gradients", [&](auto gradient) { body(parameter, gradient); });
  });
}

/// The same, and with one of the type of the states.
template <typename Body>
void with_update_types(const UpdateRange& range, base::DType state_type, Body&& body) {
  with_range_types(range, [&](auto parameter, auto gradient) {
    with_float_type(state_type, "optimizer states", [&](auto state) { body(parameter, gradient, state); });
  });
}

}  // namespace shardmark::kernels

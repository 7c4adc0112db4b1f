// One pass against a chain of LibTorch's operations, forward and backward, at the sizes of one lm10m micro-step (4 rows of 128
// positions, 8 heads of 32, MLP 688) and of wider rows.

#include <functional>
#include <string>
#include <vector>

#include "model/fused.hpp"
#include "tests/micro/ranks.hpp"

namespace {

using Operation = std::function<torch::Tensor()>;

void add(const std::string& name, const Operation& operation) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [operation](benchmark::State& state) {
                                 const double one_s = shardmark::micro::median_of_batches(state, [&] {
                                   const torch::Tensor output = operation();
                                   output.backward(at::ones_like(output));
                                 });
                                 state.counters["us"] = one_s * 1e6;
                               })
      ->Iterations(50)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

torch::Tensor input(std::vector<std::int64_t> shape, at::ScalarType type) {
  return at::randn(shape).to(type).requires_grad_();
}

void add_all(at::ScalarType type, const char* type_name) {
  using shardmark::model::rms_norm;
  using shardmark::model::rms_norm_chain;
  using shardmark::model::rotate;
  using shardmark::model::rotate_chain;
  using shardmark::model::swiglu;
  using shardmark::model::swiglu_chain;
  for (const std::int64_t width : {256, 2048}) {
    const auto name = [&](const char* operation, const char* way) {
      return std::string(operation) + "/" + std::to_string(width) + "/" + type_name + "/" + way;
    };
    const torch::Tensor x = input({4, 128, width}, type);
    const torch::Tensor weight = input({width}, type);
    add(name("rms_norm", "fused"), [=] { return rms_norm(x, weight, 1e-5); });
    add(name("rms_norm", "chain"), [=] { return rms_norm_chain(x, weight, 1e-5); });
    const torch::Tensor heads = input({4, 128, width / 32, 32}, type);
    const torch::Tensor angles = at::randn({128, 16});
    const torch::Tensor both = at::cat({angles, angles}, -1);
    const torch::Tensor cos = both.cos();
    const torch::Tensor sin = both.sin();
    add(name("rotate", "fused"), [=] { return rotate(heads, cos, sin); });
    add(name("rotate", "chain"), [=] { return rotate_chain(heads, cos, sin); });
    const torch::Tensor gate = input({4, 128, width * 43 / 16}, type);
    const torch::Tensor up = input({4, 128, width * 43 / 16}, type);
    add(name("swiglu", "fused"), [=] { return swiglu(gate, up); });
    add(name("swiglu", "chain"), [=] { return swiglu_chain(gate, up); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  return shardmark::micro::run_in_world(argc, argv, [](shardmark::world::World& world, std::span<char* const> arguments) {
    shardmark::micro::refuse_arguments(arguments);
    at::set_num_threads(1);
    add_all(at::kFloat, "fp32");
    add_all(at::kBFloat16, "bf16");
    shardmark::micro::run_registered(world);
  });
}

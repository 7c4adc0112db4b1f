#include "app/bench/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "base/text.hpp"

namespace shardmark::app::bench {
namespace {

constexpr std::array kOperations{comm::Operation::all_reduce, comm::Operation::reduce_scatter, comm::Operation::all_gather,
                                 comm::Operation::broadcast,  comm::Operation::all_to_all,     comm::Operation::send_receive,
                                 comm::Operation::barrier};
constexpr std::array kDTypes{base::DType::fp32, base::DType::bf16, base::DType::fp64, base::DType::int64, base::DType::uint8};
constexpr std::array kReductions{comm::Reduction::sum, comm::Reduction::max, comm::Reduction::min};
constexpr std::array kOrders{comm::SumOrder::fast, comm::SumOrder::ordered};
constexpr std::array kGroups{GroupKind::world, GroupKind::node, GroupKind::across};

std::string_view name_of(GroupKind kind) {
  switch (kind) {
    case GroupKind::world: return "world";
    case GroupKind::node: return "node";
    case GroupKind::across: return "across";
  }
  return "?";
}

template <typename Values>
std::string names_of(const Values& values) {
  std::vector<std::string> names;
  for (const auto value : values) {
    names.emplace_back(name_of(value));
  }
  return base::join(names, ", ");
}

/// "64M" -> 67108864. Absent if it is no size, or none that an int64 holds.
std::optional<std::int64_t> size_of_text(const std::string& text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc{} || end - result.ptr > 1) {
    return std::nullopt;
  }
  const auto suffix = std::string_view("KMG").find(result.ptr == end ? 'B' : *result.ptr);
  if (result.ptr != end && suffix == std::string_view::npos) {
    return std::nullopt;
  }
  const std::int64_t unit = result.ptr == end ? 1 : std::int64_t{1} << (10 * (suffix + 1));
  return number > std::numeric_limits<std::int64_t>::max() / unit ? std::nullopt : std::optional(number * unit);
}

class Parser {
 public:
  explicit Parser(const CommArguments& arguments) : arguments_(arguments) {}

  CommOptions parse() {
    CommOptions options;
    const bool all = std::ranges::find(arguments_.operations, "all") != arguments_.operations.end();
    options.operations =
        all ? std::vector(kOperations.begin(), kOperations.end()) : list("--op", arguments_.operations, kOperations, "all, ");
    options.dtypes = list("--dtype", arguments_.dtypes, kDTypes, "");
    options.reductions = list("--reduction", arguments_.reductions, kReductions, "");
    options.order = one("--order", arguments_.order, kOrders);
    options.group = one("--group", arguments_.group, kGroups);
    parse_sizes(options);
    options.factor = whole("--factor", arguments_.factor, 2);
    options.iterations = arguments_.iterations.empty() ? 0 : whole("--iterations", arguments_.iterations, 1);
    options.warmup = whole("--warmup", arguments_.warmup, 0);
    if (arguments_.backend != "auto" && arguments_.backend != "mpi" && arguments_.backend != "nccl") {
      problem(fmt::format("--backend {}: accepted are auto, mpi, nccl", arguments_.backend));
    }
    options.backend = arguments_.backend;
    parse_deadline(options);
    parse_places(options);
    try {
      options.format = analysis::parse_format(arguments_.format);
    } catch (const base::ConfigError& error) {
      problem(error.problems().front());
    }
    options.output = arguments_.output;
    options.overwrite = arguments_.overwrite;
    if (!problems_.empty()) {
      throw base::ConfigError(std::move(problems_));
    }
    return options;
  }

 private:
  void problem(std::string text) { problems_.push_back(std::move(text)); }

  template <typename Values>
  typename Values::value_type one(const char* option, const std::string& text, const Values& values,
                                  const std::string& more = "") {
    const auto found = std::ranges::find_if(values, [&](auto value) { return name_of(value) == text; });
    if (found == values.end()) {
      problem(fmt::format("{} {}: accepted are {}{}", option, text, more, names_of(values)));
      return values.front();
    }
    return *found;
  }

  /// Each once, in the order given.
  template <typename Values>
  std::vector<typename Values::value_type> list(const char* option, const std::vector<std::string>& texts, const Values& values,
                                                const std::string& more) {
    std::vector<typename Values::value_type> chosen;
    for (const auto& text : texts) {
      const auto value = one(option, text, values, more);
      if (std::ranges::find(chosen, value) == chosen.end()) {
        chosen.push_back(value);
      }
    }
    return chosen;
  }

  std::int64_t whole(const char* option, const std::string& text, std::int64_t least) {
    std::int64_t number = 0;
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, number);
    if (result.ec != std::errc{} || result.ptr != end || number < least || number > 1'000'000'000) {
      problem(fmt::format("{} {}: accepted are whole numbers from {} to 1000000000", option, text, least));
    }
    return number;
  }

  void parse_sizes(CommOptions& options) {
    const auto size = [&](const char* option, const std::string& text) {
      const auto bytes = size_of_text(text);
      if (!bytes || *bytes < 1) {
        problem(fmt::format("{} {}: accepted are bytes from 1 up, also with K, M or G (1024-based)", option, text));
      }
      return bytes.value_or(1);
    };
    options.min_bytes = size("--min", arguments_.min_size);
    options.max_bytes = arguments_.max_size.empty() ? 0 : size("--max", arguments_.max_size);
    if (problems_.empty() && options.max_bytes > 0 && options.max_bytes < options.min_bytes) {
      problem(fmt::format("--max {} is below --min {}", arguments_.max_size, arguments_.min_size));
    }
  }

  void parse_deadline(CommOptions& options) {
    char* end = nullptr;
    options.deadline_s = std::strtod(arguments_.deadline.c_str(), &end);
    if (end == arguments_.deadline.c_str() || *end != '\0' || !std::isfinite(options.deadline_s) || options.deadline_s <= 0) {
      problem(fmt::format("--deadline {}: accepted are seconds above 0", arguments_.deadline));
    }
  }

  void parse_places(CommOptions& options) {
    const bool chosen = arguments_.in_place || arguments_.out_of_place;
    options.in_place = arguments_.in_place || !chosen;
    options.out_of_place = arguments_.out_of_place || !chosen;
    options.pairs = arguments_.pairs;
    const auto measured = [&](comm::Operation operation) {
      return std::ranges::find(options.operations, operation) != options.operations.end();
    };
    if (chosen && (options.pairs || (!measured(comm::Operation::reduce_scatter) && !measured(comm::Operation::all_gather)))) {
      problem("--in-place, --out-of-place: only reduce_scatter and all_gather have both; neither is measured");
    }
    if (options.pairs && options.group != GroupKind::world) {
      problem("--pairs chooses its own groups: leave --group out");
    }
  }

  const CommArguments& arguments_;
  std::vector<std::string> problems_;
};

template <typename Values>
std::string toml_list(const Values& values) {
  std::vector<std::string> names;
  for (const auto value : values) {
    names.push_back(fmt::format("\"{}\"", name_of(value)));
  }
  return "[" + base::join(names, ", ") + "]";
}

}  // namespace

CommOptions parse_options(const CommArguments& arguments) {
  return Parser(arguments).parse();
}

std::string to_toml(const CommOptions& options) {
  return fmt::format(
      "[comm_benchmark]\noperations = {}\ndtypes = {}\nreductions = {}\norder = \"{}\"\ngroup = \"{}\"\nmin_bytes = {}\n"
      "max_bytes = {}\nfactor = {}\niterations = {}\nwarmup = {}\nin_place = {}\nout_of_place = {}\npairs = {}\n"
      "backend = \"{}\"\ndeadline_s = {}\n",
      toml_list(options.operations), toml_list(options.dtypes), toml_list(options.reductions), name_of(options.order),
      name_of(options.group), options.min_bytes, options.max_bytes, options.factor, options.iterations, options.warmup,
      options.in_place, options.out_of_place, options.pairs, options.backend, options.deadline_s);
}

}  // namespace shardmark::app::bench

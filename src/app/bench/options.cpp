#include "app/bench/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <regex>
#include <utility>

#include "app/positive_number.hpp"
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

/// "64M", "64MiB", "64m", "64mib" -> 67108864. Absent if it is no size, or none that an int64 holds.
std::optional<std::int64_t> size_of_text(const std::string& text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  const std::string_view suffix(result.ptr, static_cast<std::size_t>(end - result.ptr));
  const auto binary = suffix.size() == 3 && (suffix[1] == 'i' || suffix[1] == 'I') && (suffix[2] == 'B' || suffix[2] == 'b');
  if (result.ec != std::errc{} || (suffix.size() > 1 && !binary)) {
    return std::nullopt;
  }
  std::int64_t unit = 1;
  if (!suffix.empty()) {
    const auto power = std::string_view("KMGkmg").find(suffix.front());
    if (power == std::string_view::npos) {
      return std::nullopt;
    }
    unit = std::int64_t{1} << (10 * (power % 3 + 1));
  }
  return number > std::numeric_limits<std::int64_t>::max() / unit ? std::nullopt : std::optional(number * unit);
}

class Parser {
 public:
  explicit Parser(const CommArguments& arguments) : arguments_(arguments) {}

  CommOptions parse() {
    CommOptions options;
    const auto& asked = arguments_.operations;
    const bool all = asked.empty() || std::ranges::find(asked, "all") != asked.end();
    options.operations = all ? std::vector(kOperations.begin(), kOperations.end()) : list("--op", asked, kOperations, "all, ");
    options.dtypes = list("--dtype", or_first(arguments_.dtypes, kDTypes), kDTypes, "");
    options.reductions = list("--reduction", or_first(arguments_.reductions, kReductions), kReductions, "");
    options.order = one("--order", arguments_.order, kOrders);
    options.group = arguments_.group.empty() ? GroupKind::world : one("--group", arguments_.group, kGroups);
    parse_sizes(options);
    options.factor = arguments_.factor.empty() ? 4 : whole("--factor", arguments_.factor, 2);
    options.iterations = arguments_.iterations.empty() ? 0 : whole("--iterations", arguments_.iterations, 1);
    options.warmup = whole("--warmup", arguments_.warmup, 0);
    if (arguments_.backend != "auto" && arguments_.backend != "mpi" && arguments_.backend != "nccl") {
      problem(fmt::format("--backend {}: accepted are auto, mpi, nccl", arguments_.backend));
    }
    options.backend = arguments_.backend;
    options.allow_slow_path = arguments_.allow_slow_path;
    parse_deadline(options);
    parse_places(options);
    options.pairs = arguments_.pairs;
    if (options.pairs) {
      refuse_what_pairs_ignore();
    }
    try {
      options.format = analysis::parse_format(arguments_.format);
    } catch (const base::ConfigError& error) {
      problem(error.problems().front());
    }
    options.output = arguments_.output;
    options.overwrite = arguments_.overwrite;
    for (const auto& [option, ours, value] : arguments_.of_nccl_tests) {
      problem(fmt::format("{} {}: an option of nccl-tests; here it is {} {}", option, value, ours, value));
    }
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

  /// What a list that was not given stands for: the first of the values.
  template <typename Values>
  static std::vector<std::string> or_first(const std::vector<std::string>& texts, const Values& values) {
    return texts.empty() ? std::vector{std::string(name_of(values.front()))} : texts;
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
        const bool decimal = std::regex_match(text, std::regex(".*[KMGkmg][Bb]"));
        problem(fmt::format("{} {}: accepted are bytes from 1 up, also with K, M, G or KiB, MiB, GiB (1024-based){}", option,
                            text, decimal ? "; KB, MB and GB are 1000-based elsewhere, so they are not" : ""));
      }
      return bytes.value_or(1);
    };
    options.min_bytes = arguments_.min_size.empty() ? options.min_bytes : size("--min", arguments_.min_size);
    options.max_bytes = arguments_.max_size.empty() ? 0 : size("--max", arguments_.max_size);
    if (problems_.empty() && !arguments_.pairs && options.max_bytes > 0 && options.max_bytes < options.min_bytes) {
      problem(fmt::format("--max {} is below --min {}", arguments_.max_size,
                          arguments_.min_size.empty() ? "8 (the default)" : arguments_.min_size));
    }
  }

  void parse_deadline(CommOptions& options) {
    if (const auto seconds = positive_number(arguments_.deadline)) {
      options.deadline_s = *seconds;
    } else {
      problem(fmt::format("--deadline {}: accepted are seconds above 0", arguments_.deadline));
    }
  }

  void parse_places(CommOptions& options) {
    const bool chosen = arguments_.in_place || arguments_.out_of_place;
    options.in_place = arguments_.in_place || !chosen;
    options.out_of_place = arguments_.out_of_place || !chosen;
    const auto measured = [&](comm::Operation operation) {
      return std::ranges::find(options.operations, operation) != options.operations.end();
    };
    if (chosen && !arguments_.pairs && !measured(comm::Operation::reduce_scatter) && !measured(comm::Operation::all_gather)) {
      problem("--in-place, --out-of-place: only reduce_scatter and all_gather have both; neither is measured");
    }
  }

  /// --pairs measures all_reduce and send_receive of one type and size in groups of its own.
  void refuse_what_pairs_ignore() {
    const std::pair<bool, const char*> ignored[] = {
        {!arguments_.operations.empty(), "chooses its own operations: leave --op out"},
        {!arguments_.group.empty(), "chooses its own groups: leave --group out"},
        {!arguments_.min_size.empty(), "measures one size, that of --max: leave --min out"},
        {!arguments_.factor.empty(), "measures one size, that of --max: leave --factor out"},
        {arguments_.dtypes.size() > 1, "measures one type: give one --dtype"},
        {arguments_.reductions.size() > 1, "measures one reduction: give one --reduction"},
        {arguments_.in_place || arguments_.out_of_place, "chooses the places: leave --in-place and --out-of-place out"}};
    for (const auto& [given, text] : ignored) {
      if (given) {
        problem(std::string("--pairs ") + text);
      }
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
  return fmt::format("[{}]", base::join(names, ", "));
}

}  // namespace

CommOptions parse_options(const CommArguments& arguments) {
  return Parser(arguments).parse();
}

std::string in_terms_of_options(std::string text) {
  static const std::pair<std::regex, const char*> kinds[] = {
      {std::regex("\"auto\" or \"mpi\" to train on the CPU"), "auto or mpi to measure over host memory"},
      {std::regex("comm\\.backend = \"([^\"]*)\""), "--backend $1"},
      {std::regex("output\\.path = \"([^\"]*)\""), "-o $1"},
      {std::regex("set output\\.overwrite = true"), "give --overwrite"},
      {std::regex("give this run an output\\.path of its own"), "give another -o"},
      {std::regex("comm\\.allow_slow_path = true"), "--allow-slow-path"},
      {std::regex("comm\\.(init_)?deadline_s"), "--deadline"}};
  for (const auto& [pattern, option] : kinds) {
    text = std::regex_replace(text, pattern, option);
  }
  return text;
}

std::string to_toml(const CommOptions& options) {
  return fmt::format(
      "[comm_benchmark]\noperations = {}\ndtypes = {}\nreductions = {}\norder = \"{}\"\ngroup = \"{}\"\nmin_bytes = {}\n"
      "max_bytes = {}\nfactor = {}\niterations = {}\nwarmup = {}\nin_place = {}\nout_of_place = {}\npairs = {}\n"
      "backend = \"{}\"\nallow_slow_path = {}\ndeadline_s = {}\n",
      toml_list(options.operations), toml_list(options.dtypes), toml_list(options.reductions), name_of(options.order),
      name_of(options.group), options.min_bytes, options.max_bytes, options.factor, options.iterations, options.warmup,
      options.in_place, options.out_of_place, options.pairs, options.backend, options.allow_slow_path, options.deadline_s);
}

}  // namespace shardmark::app::bench

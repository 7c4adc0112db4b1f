#include "base/fault.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace shardmark::base {
namespace {

constexpr std::array<std::pair<std::string_view, FaultPhase>, 8> kPhases{{{"init", FaultPhase::init},
                                                                          {"data", FaultPhase::data},
                                                                          {"forward", FaultPhase::forward},
                                                                          {"backward", FaultPhase::backward},
                                                                          {"comm", FaultPhase::comm},
                                                                          {"optimizer", FaultPhase::optimizer},
                                                                          {"checkpoint", FaultPhase::checkpoint},
                                                                          {"record", FaultPhase::record}}};
constexpr std::array<std::pair<std::string_view, FaultKind>, 10> kKinds{{{"kill", FaultKind::kill},
                                                                         {"stop", FaultKind::stop},
                                                                         {"exit", FaultKind::exit},
                                                                         {"throw", FaultKind::raise},
                                                                         {"nan", FaultKind::nan},
                                                                         {"bitflip", FaultKind::bitflip},
                                                                         {"slow", FaultKind::slow},
                                                                         {"enospc", FaultKind::enospc},
                                                                         {"short-write", FaultKind::short_write},
                                                                         {"mismatch", FaultKind::mismatch}}};

template <typename Table, typename Value>
bool look_up(const Table& table, std::string_view name, Value& value) {
  for (const auto& [known, meaning] : table) {
    if (known == name) {
      value = meaning;
      return true;
    }
  }
  return false;
}

template <typename Table>
std::string names_in(const Table& table) {
  std::string names;
  for (const auto& [known, meaning] : table) {
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  return names;
}

template <typename Number>
bool parse_number(std::string_view text, Number& number) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return !text.empty() && result.ec == std::errc{} && result.ptr == text.data() + text.size() && number >= 0;
}

std::vector<std::string_view> split_at_colons(std::string_view text) {
  std::vector<std::string_view> parts;
  while (parts.size() < 4) {
    const auto colon = text.find(':');
    if (colon == std::string_view::npos) {
      break;
    }
    parts.push_back(text.substr(0, colon));
    text.remove_prefix(colon + 1);
  }
  parts.push_back(text);
  return parts;
}

}  // namespace

Fault parse_fault(const std::string& text) {
  const auto parts = split_at_colons(text);
  std::vector<std::string> problems;
  Fault fault;
  if (parts.size() < 4) {
    throw ConfigError(fmt::format("SHARDMARK_FAULT = \"{}\": expected rank:phase:step:kind[:value]", text));
  }
  if (!parse_number(parts[0], fault.world_rank)) {
    problems.push_back(fmt::format("SHARDMARK_FAULT: rank \"{}\" is not a number from 0 up", parts[0]));
  }
  if (!look_up(kPhases, parts[1], fault.phase)) {
    problems.push_back(fmt::format("SHARDMARK_FAULT: phase \"{}\" is not one of {}", parts[1], names_in(kPhases)));
  }
  if (!parse_number(parts[2], fault.step)) {
    problems.push_back(fmt::format("SHARDMARK_FAULT: step \"{}\" is not a number from 0 up", parts[2]));
  }
  if (!look_up(kKinds, parts[3], fault.kind)) {
    problems.push_back(fmt::format("SHARDMARK_FAULT: kind \"{}\" is not one of {}", parts[3], names_in(kKinds)));
  }
  if (parts.size() > 4) {
    fault.value = parts[4];
  }
  long number = 0;
  if ((fault.kind == FaultKind::exit || fault.kind == FaultKind::slow) && !fault.value.empty() &&
      !parse_number(std::string_view(fault.value), number)) {
    problems.push_back(fmt::format("SHARDMARK_FAULT: value \"{}\" is not a number from 0 up", fault.value));
  }
  if (!problems.empty()) {
    throw ConfigError(std::move(problems));
  }
  return fault;
}

namespace {

/// Whether some code plants a fault of this kind in this phase: one that nobody plants would pass for survived.
bool is_planted(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::nan: return fault.phase == FaultPhase::backward;
    case FaultKind::bitflip: return fault.phase == FaultPhase::optimizer || fault.phase == FaultPhase::comm;
    case FaultKind::enospc: return fault.phase == FaultPhase::record || fault.phase == FaultPhase::forward;
    case FaultKind::short_write: return fault.phase == FaultPhase::record;
    case FaultKind::mismatch: return fault.phase == FaultPhase::comm;
    default: return fault.phase != FaultPhase::checkpoint;
  }
}

}  // namespace

FaultPlan FaultPlan::from_environment() {
  const auto text = environment_variable("SHARDMARK_FAULT");
  if (!text) {
    return {};
  }
#ifdef SM_FAULTS
  const Fault fault = parse_fault(*text);
  if (!is_planted(fault)) {
    throw ConfigError(
        fmt::format("SHARDMARK_FAULT = \"{}\": nothing plants this kind in this phase. nan goes with backward, "
                    "bitflip with optimizer and (of `shardmark comm`) comm, enospc with record and forward, short-write with "
                    "record, mismatch "
                    "with comm, the others with every phase but checkpoint",
                    *text));
  }
  FaultPlan plan(fault);
  plan.text_ = *text;
  return plan;
#else
  throw ConfigError("SHARDMARK_FAULT is set, but this build has no fault points: build with SM_FAULTS=ON, or unset it");
#endif
}

bool FaultPlan::matches(FaultPhase phase, std::int64_t step) const {
  return fault_ && fault_->world_rank == world_rank_ && fault_->phase == phase && fault_->step == step;
}

std::optional<std::string> FaultPlan::due(FaultPhase phase, std::int64_t step, FaultKind kind) {
  if (spent_ || !matches(phase, step) || fault_->kind != kind) {
    return std::nullopt;
  }
  spent_ = true;
  return fault_->value;
}

void FaultPlan::act(FaultPhase phase, std::int64_t step) {
  const bool slow = fault_->kind == FaultKind::slow;
  const bool later = slow && fault_->world_rank == world_rank_ && fault_->phase == phase && step > fault_->step;
  if (!later && !matches(phase, step)) {
    return;
  }
  const long value = fault_->value.empty() ? 0 : std::strtol(fault_->value.c_str(), nullptr, 10);
  switch (fault_->kind) {
    case FaultKind::kill: kill(getpid(), SIGKILL); break;
    case FaultKind::stop: kill(getpid(), SIGSTOP); break;
    case FaultKind::exit: _exit(fault_->value.empty() ? 3 : static_cast<int>(value));
    case FaultKind::raise: throw std::runtime_error(fmt::format("fault planted by SHARDMARK_FAULT={}", text_));
    case FaultKind::slow: std::this_thread::sleep_for(std::chrono::milliseconds(fault_->value.empty() ? 20 : value)); break;
    default: break;  // planted by the code that asks `due`
  }
}

}  // namespace shardmark::base

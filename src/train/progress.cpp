#include "train/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/log.hpp"

namespace shardmark::train {
namespace {

constexpr double kBarInterval_s = 0.2;
constexpr double kLineInterval_s = 10.0;
constexpr std::int64_t kBarWidth = 24;

}  // namespace

Progress::Progress(std::int64_t total_steps, bool visible)
    : total_steps_(total_steps),
      visible_(visible),
      terminal_(isatty(STDERR_FILENO) == 1),
      interval_s_(terminal_ ? kBarInterval_s : kLineInterval_s) {}

void Progress::step_done(std::int64_t step, double loss, std::int64_t samples, double now_s) {
  if (!visible_) {
    return;
  }
  samples_ += samples;
  if (start_s_ < 0) {
    // The first step carries start-up costs: rates count from its end.
    start_s_ = last_s_ = now_s;
    samples_at_last_ = samples_;
    first_step_ = step;
    return;
  }
  if (now_s - last_s_ < interval_s_) {
    return;
  }
  const double rate = static_cast<double>(samples_ - samples_at_last_) / (now_s - last_s_);
  const double per_step = (now_s - start_s_) / static_cast<double>(step - first_step_);
  const double remaining_s = per_step * static_cast<double>(total_steps_ - step - 1);
  last_s_ = now_s;
  samples_at_last_ = samples_;
  const std::string facts =
      fmt::format("step {}/{}  {:.4g} samples/s  loss {:.6g}  {:.0f} s left", step + 1, total_steps_, rate, loss, remaining_s);
  if (!terminal_) {
    base::log_info(facts);
    return;
  }
  const auto filled = static_cast<std::size_t>(kBarWidth * (step + 1) / std::max<std::int64_t>(1, total_steps_));
  const std::string bar = std::string(filled, '#') + std::string(static_cast<std::size_t>(kBarWidth) - filled, '.');
  fmt::print(stderr, "\r[{}] {}\x1b[K", bar, facts);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::finish() {
  if (drawn_) {
    fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
    drawn_ = false;
  }
}

}  // namespace shardmark::train

#include "metrics/recorder.hpp"

#include <algorithm>
#include <type_traits>

namespace shardmark::metrics {

static_assert(std::is_trivially_copyable_v<record::StepRow>, "rows travel as bytes");

void Recorder::start_block() {
  if (energy_j_) {
    block_start_j_ = energy_j_();
  }
}

void Recorder::add(const record::EvaluationRow& row) {
  evaluations_.push_back(row);
  if (writer_ != nullptr) {
    writer_->append_evaluations(std::span(&row, 1));
  }
}

void Recorder::end_block() {
  if (energy_j_ && !pending_.empty()) {
    const double step_j = (energy_j_() - block_start_j_) / static_cast<double>(pending_.size());
    for (auto& row : pending_) {
      row.energy_j = step_j;
    }
  }
  const auto bytes = static_cast<std::int64_t>(pending_.size() * sizeof(record::StepRow));
  const auto ranks = static_cast<std::size_t>(communicator_.size());
  gathered_.resize(pending_.size() * ranks);
  communicator_
      .all_gather(comm::host_buffer(pending_.data(), bytes, base::DType::uint8),
                  comm::host_buffer(gathered_.data(), bytes * communicator_.size(), base::DType::uint8), comm::Purpose::control,
                  0)
      .wait();
  pending_.clear();
  if (communicator_.rank() != 0) {
    return;
  }
  std::ranges::stable_sort(gathered_, {}, &record::StepRow::step);
  rows_.insert(rows_.end(), gathered_.begin(), gathered_.end());
  if (writer_ != nullptr) {
    writer_->append_steps(gathered_);
  }
}

}  // namespace shardmark::metrics

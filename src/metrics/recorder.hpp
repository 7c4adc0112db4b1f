#pragma once
// Collects each rank's step rows and brings them to rank 0 at block borders, where they are written and flushed.

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "record/rows.hpp"
#include "record/writer.hpp"

namespace shardmark::metrics {

class Recorder {
 public:
  /// `writer` is rank 0's record, nullptr elsewhere or where nothing is written. Both are lent.
  Recorder(comm::Communicator& communicator, record::RecordWriter* writer) : communicator_(communicator), writer_(writer) {}

  /// Energy of this rank's device so far, in joules; NaN where it is not told. Read at block borders only.
  void set_energy_counter(std::function<double()> energy_j) { energy_j_ = std::move(energy_j); }

  /// Steps begin now: what is used from here to end_block is theirs. Local.
  void start_block();
  void add(const record::StepRow& row) { pending_.push_back(row); }
  /// Of all ranks, all with the same quality; rank 0's goes to the record. Throws IoError on rank 0 alone.
  void add(const record::EvaluationRow& row);
  /// The device is done with the block's steps: the energy it used is spread evenly over the rows of this rank, for its counter
  /// is updated too seldom to tell single steps. Collective; every rank has added the same number of rows. Rank 0 appends all
  /// of them to the record and flushes it. Throws IoError on rank 0 alone if the disk is full.
  void end_block();
  /// Rows of all ranks, on rank 0.
  [[nodiscard]] const std::vector<record::StepRow>& rows() const { return rows_; }
  [[nodiscard]] const std::vector<record::EvaluationRow>& evaluations() const { return evaluations_; }

 private:
  comm::Communicator& communicator_;
  record::RecordWriter* writer_;
  std::function<double()> energy_j_;
  double block_start_j_ = record::kMissing;
  std::vector<record::StepRow> pending_;
  std::vector<record::StepRow> gathered_;
  std::vector<record::StepRow> rows_;
  std::vector<record::EvaluationRow> evaluations_;
};

}  // namespace shardmark::metrics

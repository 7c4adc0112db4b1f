#include "world/notices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "world/sides.hpp"

namespace shardmark::world {
namespace {

constexpr int kNoticeTag = 1;
/// How long others may take to answer a report: they look for notices every few milliseconds while they wait.
constexpr double kCollect_s = 1.0;

void copy_text(std::span<char> to, std::string_view text) {
  const auto length = std::min(text.size(), to.size() - 1);
  std::copy_n(text.begin(), length, to.begin());
  to[length] = '\0';
}

std::string wait_text(const Notice& notice) {
  std::string text = fmt::format("{} number {}", notice.operation, notice.sequence);
  if (notice.purpose[0] != '\0') {
    text += fmt::format(" ({}, tag {})", notice.purpose, notice.tag);
  }
  return text + fmt::format(", {} bytes", notice.bytes);
}

Notice waiting_notice(const World::Handles& handles, const WaitInfo& info, double waited_s) {
  Notice notice;
  notice.kind = Notice::Kind::waiting;
  notice.rank = handles.rank;
  notice.sequence = info.sequence;
  notice.tag = info.tag;
  notice.bytes = info.bytes;
  notice.waited_s = waited_s;
  copy_text(notice.operation, info.operation);
  copy_text(notice.purpose, info.purpose);
  copy_text(notice.host, handles.host);
  return notice;
}

/// "rank 2 on node7", several joined.
std::string name_ranks(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  constexpr std::size_t kMost = 16;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(kMost, ranks.size()); ++i) {
    names.push_back(fmt::format("rank {} on {}", ranks[i], hosts[static_cast<std::size_t>(ranks[i])]));
  }
  if (ranks.size() > kMost) {
    names.push_back(fmt::format("{} more", ranks.size() - kMost));
  }
  return base::join(names, ", ");
}

/// Who is to blame: the silent ranks; if all spoke, those that wait for something else, or the last to come.
std::string verdict(const std::vector<std::optional<Notice>>& reports, const std::vector<std::string>& hosts) {
  std::vector<int> silent;
  std::vector<int> ranks;
  std::vector<std::string> texts;
  int last = 0;
  for (std::size_t r = 0; r < reports.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (!reports[r]) {
      silent.push_back(rank);
      continue;
    }
    ranks.push_back(rank);
    texts.push_back(wait_text(*reports[r]));
    const auto& latest = reports[static_cast<std::size_t>(last)];
    last = !latest || reports[r]->waited_s < latest->waited_s ? rank : last;
  }
  if (!silent.empty()) {
    return fmt::format("no report from {}: stuck, stopped or busy elsewhere", name_ranks(silent, hosts));
  }
  if (std::ranges::any_of(texts, [&](const std::string& text) { return text != texts.front(); })) {
    return "every rank waits, but not for the same: " + sides_text(texts, ranks);
  }
  return fmt::format("every rank has come; the last was {}, after the deadline of others", name_ranks({last}, hosts));
}

}  // namespace

void Notices::send_to_all(const Notice& notice) {
  outgoing_.push_back(notice);
  for (int peer = 0; peer < handles_.size; ++peer) {
    if (peer == handles_.rank) {
      continue;
    }
    requests_.push_back(MPI_REQUEST_NULL);
    handles_.check(
        MPI_Isend(&outgoing_.back(), sizeof(Notice), MPI_BYTE, peer, kNoticeTag, handles_.notices, &requests_.back()),
        "MPI_Isend of a notice");
  }
}

void Notices::send_failure(base::ExitCode code, const std::string& message) {
  Notice notice;
  notice.rank = handles_.rank;
  notice.code = static_cast<std::int32_t>(code);
  copy_text(notice.host, handles_.host);
  copy_text(notice.message, message);
  send_to_all(notice);
}

void Notices::send_waiting(const WaitInfo& info, double waited_s) {
  send_to_all(waiting_notice(handles_, info, waited_s));
}

std::string Notices::text_of(const WaitInfo& info) const {
  return wait_text(waiting_notice(handles_, info, 0));
}

std::optional<Notice> Notices::receive() {
  int arrived = 0;
  MPI_Status status;
  handles_.check(MPI_Iprobe(MPI_ANY_SOURCE, kNoticeTag, handles_.notices, &arrived, &status), "MPI_Iprobe for notices");
  if (arrived == 0) {
    return std::nullopt;
  }
  // The probe saw the whole eager message, so that this receive does not block.
  Notice notice;
  handles_.check(MPI_Recv(&notice, sizeof notice, MPI_BYTE, status.MPI_SOURCE, kNoticeTag, handles_.notices, MPI_STATUS_IGNORE),
                 "MPI_Recv of a notice");
  return notice;
}

bool Notices::progress() {
  int done = 0;
  handles_.check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
                 "MPI_Testall of notices");
  return done != 0;
}

void Notices::raise(const Notice& failure) {
  throw base::RemoteError(static_cast<base::ExitCode>(failure.code),
                          fmt::format("rank {} on {} failed: {}", failure.rank, failure.host, failure.message));
}

void Notices::raise_deadline(const WaitInfo& info, double waited_s, double deadline_s, std::optional<Notice> first,
                             const std::vector<std::string>& hosts) {
  std::vector<std::optional<Notice>> reports(static_cast<std::size_t>(handles_.size));
  const Notice mine = waiting_notice(handles_, info, waited_s);
  reports[static_cast<std::size_t>(handles_.rank)] = mine;
  const bool own = !first;
  std::size_t missing = reports.size() - 1;
  const auto take = [&](const Notice& notice) {
    if (notice.kind == Notice::Kind::failure) {
      raise(notice);
    }
    auto& report = reports[static_cast<std::size_t>(notice.rank)];
    missing -= report ? 0U : 1U;
    report = notice;
  };
  send_to_all(mine);
  base::log_rank(fmt::format("waited {:.1f} s in {}", waited_s, wait_text(mine)));
  if (first) {
    take(*first);
  }
  const double until_s = base::now_s() + kCollect_s;
  while (missing > 0 && base::now_s() < until_s) {
    if (const auto notice = receive()) {
      take(*notice);
    } else {
      progress();
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }
  const std::string whose = own ? "" : fmt::format("rank {} on {} passed its deadline; this rank ", first->rank, first->host);
  throw base::DeadlineError(
      fmt::format("{}waited {:.1f} s (deadline {} s) in {}: {}. Raise comm.deadline_s if the wait is meant", whose, waited_s,
                  deadline_s, wait_text(mine), verdict(reports, hosts)));
}

}  // namespace shardmark::world

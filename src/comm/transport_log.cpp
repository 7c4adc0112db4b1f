#include "comm/transport_log.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

namespace shardmark::comm {
namespace {

constexpr std::string_view kInfo = " NCCL INFO ";

/// Takes a line apart from its start.
class Cursor {
 public:
  explicit Cursor(std::string_view line) : left_(line) {}

  [[nodiscard]] std::string_view left() const { return left_; }
  bool skip(std::string_view word) {
    const bool found = left_.starts_with(word);
    left_.remove_prefix(found ? word.size() : 0);
    return found;
  }
  bool skip_past(std::string_view word) {
    const auto at = left_.find(word);
    if (at == std::string_view::npos) {
      return false;
    }
    left_.remove_prefix(at + word.size());
    return true;
  }
  std::optional<int> number() {
    int value = 0;
    const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), value);
    if (error != std::errc{}) {
      return std::nullopt;
    }
    left_.remove_prefix(static_cast<std::size_t>(end - left_.data()));
    return value;
  }

 private:
  std::string_view left_;
};

bool is_or_begins(std::string_view detail, std::string_view word) {
  return detail == word || (detail.starts_with(word) && detail[word.size()] == '/');
}

PathClass class_of(std::string_view detail) {
  if (is_or_begins(detail, "P2P")) {
    return PathClass::p2p;
  }
  if (is_or_begins(detail, "SHM")) {
    return PathClass::shm;
  }
  if (is_or_begins(detail, "NET/IB")) {
    return PathClass::ib;
  }
  if (is_or_begins(detail, "NET/Socket")) {
    return PathClass::socket;
  }
  return detail.starts_with("NET/") ? PathClass::plugin : PathClass::unknown;
}

struct ChannelLine {
  PeerPath path;
  int own = 0;  // the rank of the side that wrote it
};

/// "Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA". Without [send] or [receive] it is the sender's.
std::optional<ChannelLine> channel_line(std::string_view message) {
  Cursor at(message);
  if (!at.skip("Channel ") || !at.number() || (at.skip("/") && !at.number()) || !at.skip(" : ")) {
    return std::nullopt;
  }
  const auto from = at.number();
  if (!from || !at.skip("[") || !at.skip_past("] -> ")) {
    return std::nullopt;
  }
  const auto to = at.number();
  if (!to || !at.skip("[") || !at.skip_past("]")) {
    return std::nullopt;
  }
  const bool receives = at.skip(" [receive]");
  if (!receives) {
    at.skip(" [send]");
  }
  if (!at.skip(" via ") || at.left().empty()) {
    return std::nullopt;
  }
  return ChannelLine{{*from, *to, class_of(at.left()), std::string(at.left())}, receives ? *to : *from};
}

struct InitLine {
  int rank = 0;
  std::string id;  // "" of a communicator that was split from another
};

/// "[Rank 0] ncclCommInitRankConfig comm 0x... rank 0 nranks 2 ... commId 0x... - Init START"; a split has "parent" and no
/// commId.
std::optional<InitLine> init_line(std::string_view message) {
  Cursor at(message);
  if (message.find("Init START") == std::string_view::npos || !at.skip_past(" rank ")) {
    return std::nullopt;
  }
  const auto rank = at.number();
  if (!rank || !at.skip(" nranks ")) {
    return std::nullopt;
  }
  InitLine line{*rank, ""};
  if (at.skip_past("commId ")) {
    line.id = std::string(at.left().substr(0, at.left().find(' ')));
  }
  return line;
}

/// "host:pid" of "[2026-01-01 10:00:00] host:pid:tid [0]": times pass, and threads come and go.
std::string_view writer_of(std::string_view prefix) {
  prefix = prefix.substr(0, prefix.rfind(" ["));
  prefix = prefix.substr(prefix.rfind(' ') + 1);
  return prefix.substr(0, prefix.rfind(':'));
}

/// One process that writes, and its ranks in the communicators it made so far.
struct Process {
  std::optional<int> rank;  // in the first; absent where the log began later
  std::set<int> others;
};

class Parser {
 public:
  void read(std::string_view line) {
    const auto at = line.find(kInfo);
    if (at == std::string_view::npos || line.find(kInfo, at + kInfo.size()) != std::string_view::npos) {
      return;  // of something else, or two lines in one
    }
    auto message = line.substr(at + kInfo.size());
    if (message.ends_with('\r')) {
      message.remove_suffix(1);
    }
    auto& process = processes_[std::string(writer_of(line.substr(0, at)))];
    Cursor network(message);
    if (network.skip("Using network ")) {
      log_.network = log_.network.empty() ? std::string(network.left()) : log_.network;
    } else if (const auto init = init_line(message)) {
      begin_communicator(process, *init);
    } else if (auto channel = channel_line(message)) {
      take(process, std::move(*channel));
    }
  }

  TransportLog finish() { return std::move(log_); }

 private:
  void begin_communicator(Process& process, const InitLine& line) {
    if (first_.empty() && !line.id.empty()) {
      first_ = line.id;
    }
    if (line.id == first_ && !line.id.empty()) {
      process.rank = line.rank;
    } else {
      process.others.insert(line.rank);
    }
  }

  void take(const Process& process, ChannelLine line) {
    const bool of_first = (!process.rank || line.own == *process.rank) && !process.others.contains(line.own);
    if (of_first && std::ranges::find(log_.paths, line.path) == log_.paths.end()) {
      log_.paths.push_back(std::move(line.path));
    }
  }

  TransportLog log_;
  std::string first_;  // id of the first communicator
  std::map<std::string, Process> processes_;
};

}  // namespace

std::string_view name_of(PathClass path) {
  switch (path) {
    case PathClass::p2p: return "P2P";
    case PathClass::shm: return "SHM";
    case PathClass::ib: return "IB";
    case PathClass::socket: return "socket";
    case PathClass::plugin: return "plugin";
    case PathClass::unknown: return "unknown";
  }
  return "unknown";
}

TransportLog parse_transport_log(std::string_view text) {
  Parser parser;
  // A last line without its end may be cut within a word: "NET/IB" of "NET/IBext".
  for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    parser.read(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return parser.finish();
}

}  // namespace shardmark::comm

// Versions of libraries, compiled against and loaded, and libraries that are loaded twice.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "app/doctor/check_parts.hpp"
#include "base/text.hpp"

namespace shardmark::app::doctor {
namespace {

std::string first_part(const std::string& version) {
  return version.substr(0, version.find('.'));
}

/// How a version that differs from the compiled one counts: Open MPI, MPICH and CUDA keep their binary interface within a
/// major version; HDF5 stops the program itself, LibTorch's C++ interface and NCCL promise nothing.
enum class Binary { within_major, exact };

Line version_line(const std::string& check, const JobFacts& job, Version LibraryFacts::*which, Binary binary,
                  const std::string& name) {
  auto line = combine(check, job.ranks, [&](const RankFacts& rank) -> Finding {
    const Version& version = rank.libraries.*which;
    if (version.loaded.empty()) {
      return {Result::skip, name + " is not loaded"};
    }
    if (version.built.empty() || version.built == version.loaded) {
      return {Result::pass, version.loaded};
    }
    const bool bad = binary == Binary::exact || first_part(version.built) != first_part(version.loaded);
    return {bad ? Result::fail : Result::warn, fmt::format("compiled against {}, loaded is {}", version.built, version.loaded),
            fmt::format("load the {} it was compiled with (modules, LD_LIBRARY_PATH), or build shardmark anew", name)};
  });
  std::set<std::string> loaded;
  for (const auto& rank : job.ranks) {
    loaded.insert((rank.libraries.*which).loaded);
  }
  if (loaded.size() > 1) {
    line.result = Result::fail;
    line.remedy += (line.remedy.empty() ? "" : "; ") + fmt::format("load the same {} on all nodes", name);
  }
  return line;
}

/// NCCL's line also says which files the two versions are of: a mix comes from a path.
Line nccl_line(const JobFacts& job) {
  auto line = version_line("nccl", job, &LibraryFacts::nccl, Binary::exact, "NCCL");
  if (line.result == Result::pass) {
    const bool device = std::ranges::any_of(job.ranks, [](const RankFacts& rank) { return !rank.device.devices.empty(); });
    line.found +=
        std::string(": header and library agree; not tried") + (device ? " here: `shardmark comm` does" : ": no device");
  }
  std::set<std::string> places;
  for (const auto& rank : job.ranks) {
    const auto& [header, library] = rank.libraries.nccl_paths;
    if (rank.libraries.nccl.built != rank.libraries.nccl.loaded && !library.empty()) {
      places.insert(fmt::format("header {}, library {}", header, library));
    }
  }
  if (!places.empty()) {
    line.found += "; " + base::join({places.begin(), places.end()}, "; ");
  }
  return line;
}

Line hdf5_kind_line(const JobFacts& job) {
  const auto kind = [](bool parallel) { return parallel ? "parallel" : "serial"; };
  return combine("hdf5 kind", job.ranks, [&](const RankFacts& rank) -> Finding {
    const auto& libraries = rank.libraries;
    if (libraries.hdf5_built_parallel != libraries.hdf5_loaded_parallel) {
      return {Result::fail,
              fmt::format("compiled against a {} HDF5, loaded is a {} one", kind(libraries.hdf5_built_parallel),
                          kind(libraries.hdf5_loaded_parallel)),
              "load the HDF5 it was compiled with (modules, LD_LIBRARY_PATH), or set HDF5_ROOT and build shardmark anew"};
    }
    return {Result::pass, libraries.hdf5_loaded_parallel ? "parallel; rank 0 alone writes, serially" : "serial"};
  });
}

/// Libraries under several names of which a process may hold one only.
std::string family_of(const std::string& stem) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> families{{{"libgomp", "the OpenMP runtime"},
                                                                                   {"libiomp5", "the OpenMP runtime"},
                                                                                   {"libomp", "the OpenMP runtime"},
                                                                                   {"libmpi", "MPI"},
                                                                                   {"libmpich", "MPI"},
                                                                                   {"libhdf5", "HDF5"},
                                                                                   {"libhdf5_serial", "HDF5"},
                                                                                   {"libhdf5_openmpi", "HDF5"},
                                                                                   {"libhdf5_mpich", "HDF5"}}};
  for (const auto& [name, family] : families) {
    if (name == stem) {
      return std::string(family);
    }
  }
  return stem;
}

/// "libhdf5" of /x/libhdf5-3f2a91bc.so.103.2: wheels put a hash behind the names of libraries they bring.
std::string stem_of(const std::string& path) {
  const auto file = path.substr(path.rfind('/') + 1);
  auto stem = file.substr(0, file.find(".so"));
  const auto dash = stem.rfind('-');
  if (dash != std::string::npos && stem.size() - dash - 1 >= 8 &&
      stem.find_first_not_of("0123456789abcdef", dash + 1) == std::string::npos) {
    stem.resize(dash);
  }
  return stem;
}

/// Two copies keep two states: messages of one MPI, files of one HDF5, are unknown to the other.
bool is_fatal(const std::string& family) {
  constexpr std::array<std::string_view, 8> names{"MPI",     "HDF5",         "libnccl", "libcudart",
                                                  "libcuda", "libtorch_cpu", "libc10",  "libstdc++"};
  return std::ranges::find(names, family) != names.end();
}

Line duplicates_line(const JobFacts& job) {
  return combine("duplicate libraries", job.ranks, [](const RankFacts& rank) -> Finding {
    std::map<std::string, std::set<std::string>> files;
    for (const auto& path : rank.libraries.files) {
      files[family_of(stem_of(path))].insert(path);
    }
    Finding finding{Result::pass, "none"};
    std::vector<std::string> texts;
    for (const auto& [family, paths] : files) {
      if (paths.size() > 1) {
        texts.push_back(fmt::format("{} twice: {}", family, base::join({paths.begin(), paths.end()}, " and ")));
        finding.result = std::max(finding.result, is_fatal(family) ? Result::fail : Result::warn);
      }
    }
    if (!texts.empty()) {
      finding.found = base::join(texts, "; ");
      finding.remedy = "keep one: look into LD_PRELOAD, LD_LIBRARY_PATH and loaded modules, or build against the one meant";
    }
    return finding;
  });
}

}  // namespace

void check_libraries(const JobFacts& job, std::vector<Line>& lines) {
  lines.push_back(version_line("mpi", job, &LibraryFacts::mpi, Binary::within_major, "MPI"));
  lines.push_back(version_line("hdf5", job, &LibraryFacts::hdf5, Binary::exact, "HDF5"));
  lines.push_back(hdf5_kind_line(job));
  lines.push_back(version_line("libtorch", job, &LibraryFacts::libtorch, Binary::exact, "LibTorch"));
  lines.push_back(version_line("cuda runtime", job, &LibraryFacts::cuda_runtime, Binary::within_major, "CUDA runtime"));
  lines.push_back(nccl_line(job));
  lines.push_back(duplicates_line(job));
}

}  // namespace shardmark::app::doctor

#include "device/torch_library.hpp"

#include <ATen/ATen.h>
#include <ATen/Version.h>

namespace shardmark::device {

std::string torch_build_setting(const std::string& name) {
  const std::string all = at::show_config();
  const std::string key = " " + name + "=";
  const auto at = all.find(key);
  if (at == std::string::npos) {
    return "";
  }
  const auto begin = at + key.size();
  return all.substr(begin, all.find_first_of(",\n ", begin) - begin);
}

}  // namespace shardmark::device

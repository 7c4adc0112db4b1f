// `shardmark list`: presets, or every configuration key.

#include <fmt/format.h>

#include <memory>

#include "app/command.hpp"
#include "config/keys.hpp"
#include "config/parse.hpp"

namespace shardmark::app {

void add_list_command(CLI::App& program, Action& chosen) {
  auto* command = program.add_subcommand("list", "what exists: presets, and with --keys every configuration key");
  command->footer("Example: shardmark list --keys");
  auto keys = std::make_shared<bool>(false);
  command->add_flag("--keys", *keys, "every configuration key with default, meaning and accepted values");
  command->callback([&chosen, keys] {
    chosen = [keys] {
      if (*keys) {
        fmt::print("{}", config::list_keys());
        return base::ExitCode::good;
      }
      const std::string folder = config::find_preset_dir();
      for (const auto& name : config::preset_names(folder)) {
        fmt::print("{:<16} {}\n", name, config::preset_description(folder, name));
      }
      return base::ExitCode::good;
    };
  });
}

}  // namespace shardmark::app

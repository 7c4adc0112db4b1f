#pragma once
// How a subcommand joins the program: it declares its options and, when it is the one asked for, leaves what to do.

#include <CLI/CLI.hpp>
#include <functional>

#include "base/error.hpp"

namespace shardmark::app {

using Action = std::function<base::ExitCode()>;

// Each declares one subcommand; its callback sets `chosen`.
void add_run_command(CLI::App& program, Action& chosen);
void add_plan_command(CLI::App& program, Action& chosen);
void add_verify_command(CLI::App& program, Action& chosen);
void add_comm_command(CLI::App& program, Action& chosen);
void add_doctor_command(CLI::App& program, Action& chosen);
void add_show_command(CLI::App& program, Action& chosen);
void add_export_command(CLI::App& program, Action& chosen);
void add_compare_command(CLI::App& program, Action& chosen);
void add_list_command(CLI::App& program, Action& chosen);
void add_explain_command(CLI::App& program, Action& chosen);

}  // namespace shardmark::app

#pragma once
// Signals of a batch system. SIGUSR1: stop at the next step edge. SIGTERM, SIGINT: abandon at once.

#include <csignal>

namespace shardmark::train {

/// Installs the handlers; they only set the flags below.
void install_signal_handlers();
/// SIGUSR1 came.
[[nodiscard]] bool stop_requested();
/// Non-zero once SIGTERM or SIGINT came: for World::set_interrupt_flag.
[[nodiscard]] const volatile std::sig_atomic_t* interrupt_flag();

}  // namespace shardmark::train

#include "train/stop_request.hpp"

namespace shardmark::train {
namespace {

volatile std::sig_atomic_t stop_flag = 0;
volatile std::sig_atomic_t interrupt = 0;

void on_stop(int /*signal*/) {
  stop_flag = 1;
}
void on_interrupt(int signal) {
  interrupt = signal;
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  action.sa_handler = on_interrupt;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

bool stop_requested() {
  return stop_flag != 0;
}
const volatile std::sig_atomic_t* interrupt_flag() {
  return &interrupt;
}

}  // namespace shardmark::train

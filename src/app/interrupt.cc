#include "app/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string_view>

namespace cento {
namespace {

std::atomic<bool> g_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // used in a signal handler

extern "C" void on_interrupt(int) {
  if (g_requested.exchange(true)) _exit(kInterruptedStatus);
  if (isatty(STDERR_FILENO)) {
    constexpr std::string_view kNote = "\nstopping; press Ctrl-C again to stop at once\n";
    [[maybe_unused]] const auto ignored = write(STDERR_FILENO, kNote.data(), kNote.size());
  }
}

}  // namespace

void watch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;  // waits that must end use poll, which no flag restarts
  sigaction(SIGINT, &action, nullptr);
  // A reader that went away is seen as EPIPE where it is written to, and ends the program with status 0 there.
  signal(SIGPIPE, SIG_IGN);
}

bool interrupt_requested() { return g_requested.load(std::memory_order_relaxed); }

void throw_if_interrupted() {
  if (interrupt_requested()) throw Interrupted{};
}

}  // namespace cento

// Ctrl-C: the first one asks the work to stop at the next good place, the second one ends the program at once.
#pragma once

#include <functional>

namespace cento {

struct Interrupted {};  // thrown when there is nothing to keep; main turns it into exit status 130
inline constexpr int kInterruptedStatus = 130;

void watch_interrupts();
bool interrupt_requested();
void throw_if_interrupted();

}  // namespace cento

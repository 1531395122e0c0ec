// `cento model check`: whether stored KV may be reused with a model on this machine, and how much to recompute.
#pragma once

#include "app/commands.h"

namespace cento {

int model_check(Run& run, const ModelCommand& command);

}  // namespace cento

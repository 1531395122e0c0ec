// Fingerprint of a loaded model by way of the catalogue, so that an unchanged file is hashed once.
#pragma once

#include "engine/loaded_model.h"
#include "kv/catalogue.h"
#include "kv/kv_block.h"

namespace cento {

// Sets the model's fingerprint and notes the model in the catalogue (which may be null, or read-only).
void identify(LoadedModel& model, Catalogue* catalogue);

}  // namespace cento

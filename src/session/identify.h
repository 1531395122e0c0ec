// Fingerprint of a loaded model by way of the catalogue, so that an unchanged file is hashed once.
#pragma once

#include "engine/loaded_model.h"
#include "kv/catalogue.h"
#include "kv/kv_block.h"

namespace cento {

// Whether the model has to be noted now, waiting for other processes; or it is left to a later run while the store is
// locked or the disk full: a question does not wait for that.
enum class NoteModel { kNow, kIfFree };

// Sets the model's fingerprint and notes the model in the catalogue (which may be null, or read-only).
void identify(LoadedModel& model, Catalogue* catalogue, NoteModel note = NoteModel::kIfFree);

}  // namespace cento

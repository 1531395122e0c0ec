// What a trial's figures depend on, as a key of the journal.
#pragma once

#include "base/hash.h"
#include "engine/loaded_model.h"
#include "eval/evaluation.h"
#include "eval/trial.h"

namespace cento {

// Of a prompt on a model; `contexts`: with what its chunks are precomputed behind, which full prefill does not see.
Hash prompt_key(LoadedModel& model, const TrialPrompt& prompt, bool contexts);
// Of a trial of that prompt.
Hash trial_key(const Hash& prompt, const TrialSetting& setting, const EvalOptions& options);
// Of what full prefill gives for it.
Hash reference_key(LoadedModel& model, const TrialPrompt& prompt, const EvalOptions& options);

}  // namespace cento

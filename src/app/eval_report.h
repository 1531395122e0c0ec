// An evaluation as a table for the terminal and as a page with plots.
#pragma once

#include <string>

#include "eval/evaluation.h"
#include "eval/results_html.h"

namespace cento {

std::string eval_text(const EvalReport& report, const EvalOptions& options, LoadedModel& model);
ResultsReport eval_page(const EvalReport& report, const EvalOptions& options, LoadedModel& model);

}  // namespace cento

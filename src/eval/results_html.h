// A report as one HTML file: no script, nothing loaded from elsewhere, light or dark as the reader's system is, each
// chart with its figures in a table below it. Well-formed as XML too.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "eval/plot.h"

namespace cento {

struct ReportTable {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // the first cell of each names the row
};

using ReportPart = std::variant<std::string, ReportTable, LineChart, BarChart, HeatMap>;  // text: a paragraph

struct ReportSection {
  std::string heading;
  std::vector<ReportPart> parts;
};

struct ResultsReport {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  // what was run: machine, model, data, seed, ...
  std::vector<ReportSection> sections;
};

std::string results_html(const ResultsReport& report);

// The figures of a chart, one row a point, bar or row of cells.
ReportTable table_of(const LineChart& chart);
ReportTable table_of(const BarChart& chart);
ReportTable table_of(const HeatMap& map);

}  // namespace cento

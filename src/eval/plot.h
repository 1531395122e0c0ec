// Charts as data, and each as one SVG element for results_html.h, whose style sheet gives the colours.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cento {

// Texts may hold anything: they are escaped where they are written. Values that are not finite, and on a logarithmic
// axis those not above 0, are not drawn; the SVG says how many.

struct PlotAxis {
  std::string label;  // with the unit
  bool log = false;
};

struct PlotRange {
  double low = 0, high = 0;
};

struct PlotPoint {
  double x = 0, y = 0;
  std::optional<PlotRange> x_range, y_range;  // error bars
  std::string label;                          // shown on hover and in the table; may be empty
};

struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points;
  bool joined = true;  // by a line, in this order
};

struct LineChart {
  std::string title, description;  // description: one sentence of what is to be seen, for those who do not see it
  PlotAxis x, y;
  std::vector<PlotSeries> series;
};

struct PlotBar {
  double value = 0;
  std::optional<PlotRange> range;
};

struct BarSeries {
  std::string name;
  std::vector<PlotBar> bars;  // [groups]; missing ones are left out
};

struct BarChart {
  std::string title, description;
  std::string value_label;
  std::vector<std::string> groups;
  std::vector<BarSeries> series;
};

// Colour goes from none at 0 to full at the largest absolute value; negative values have another colour.
struct HeatMap {
  std::string title, description;
  std::string column_label, row_label, value_label;
  std::vector<std::string> columns, rows;
  std::vector<double> values;  // [rows, columns]; missing ones at the end are empty cells, as NaN is
};

// `id` is unique in its page: letters and digits.
std::string svg_of(const LineChart& chart, const std::string& id);
std::string svg_of(const BarChart& chart, const std::string& id);
std::string svg_of(const HeatMap& chart, const std::string& id);

std::string value_text(double value, const std::optional<PlotRange>& range);  // "0.03 [0.02, 0.05]"

// Text for the inside of an element or of a quoted attribute, in HTML and XML: & < > " ' become references; invalid
// UTF-8, control and bidirectional characters visible escapes (printable() of base/text.h).
std::string escaped(std::string_view text);

}  // namespace cento

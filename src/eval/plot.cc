#include "eval/plot.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "eval/plot_scale.h"

namespace cento {
namespace {

// Units of the drawing, about a CSS pixel each.
constexpr double kWidth = 760, kLeft = 84, kRight = 18, kTop = 14, kPlotHeight = 320, kBelowAxis = 52;
constexpr double kCharWidth = 7.8;  // of the 13-unit font, about; of DejaVu Sans, the widest of the usual ones
constexpr double kBarHeight = 12;
constexpr size_t kLabelCharsMax = 44, kGroupCharsMax = 34;
constexpr size_t kMarkersMax = 120;  // a joined series of more points is a line alone
constexpr size_t kColours = 8;       // classes c0..c7 of the style sheet
constexpr double kPlotWidth = kWidth - kLeft - kRight, kBottom = kTop + kPlotHeight;

std::string coordinate(double v) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, v, std::chars_format::fixed, 1).ptr;
  return {buffer, end};
}

// name="v" with a space before it.
std::string attribute(const char* name, double v) { return std::string(" ") + name + "=\"" + coordinate(v) + "\""; }

size_t n_characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// At most n_max characters, the last of them an ellipsis if something was cut.
std::string cut(const std::string& raw, size_t n_max) {
  const std::string text = to_valid_utf8(raw);
  if (n_characters(text) <= n_max) return text;
  size_t end = 0;
  for (size_t n = 0; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xc0) != 0x80 && n++ == n_max - 1) break;
  }
  return text.substr(0, end) + "\u2026";
}

std::string line(const char* style, double x1, double y1, double x2, double y2) {
  return std::string("<line class=\"") + style + "\"" + attribute("x1", x1) + attribute("y1", y1) +
         attribute("x2", x2) + attribute("y2", y2) + "/>\n";
}

std::string text_at(const char* anchor, double x, double y, const std::string& text, const char* more = "") {
  return std::string("<text text-anchor=\"") + anchor + "\"" + attribute("x", x) + attribute("y", y) + more + ">" +
         escaped(text) + "</text>\n";
}

std::string series_class(size_t i) { return "c" + std::to_string(i % kColours); }

// Dashes tell apart what the eight colours do not.
std::string dashes(size_t i) {
  static constexpr std::array<const char*, 4> kDashes = {"", "7 4", "2 3", "9 3 2 3"};
  const char* pattern = kDashes[i / kColours % kDashes.size()];
  return *pattern == '\0' ? "" : std::string(" stroke-dasharray=\"") + pattern + "\"";
}

// One of six shapes around (x, y), so that series differ by more than colour. `hover` is what a pointer on it shows.
std::string marker(size_t series, double x, double y, const std::string& hover) {
  static constexpr std::array<const char*, 6> kShapes = {"",
                                                         "m-4-4h8v8h-8z",
                                                         "m0-5 5 9h-10z",
                                                         "m0-5.5 5.5 5.5-5.5 5.5-5.5-5.5z",
                                                         "m0 5 5-9h-10z",
                                                         "m-5-1.5h3.5v-3.5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5z"};
  const size_t shape = series % kShapes.size();
  const std::string style = " class=\"fill " + series_class(series) + "\"";
  const std::string title = "><title>" + escaped(hover) + "</title>";
  if (shape == 0)
    return "<circle" + style + attribute("cx", x) + attribute("cy", y) + " r=\"4\"" + title + "</circle>\n";
  return "<path" + style + " d=\"M" + coordinate(x) + " " + coordinate(y) + kShapes[shape] + "\"" + title + "</path>\n";
}

struct LegendEntry {
  size_t series;
  std::string name;
};

// Rows of names at the foot of a drawing of this height, which grows by what they take.
std::string legend(const std::vector<LegendEntry>& entries, double& height) {
  std::string out;
  double x = kLeft;
  double y = height + 14;
  for (const auto& [series, name] : entries) {
    const std::string label = cut(name, kLabelCharsMax);
    const double width = 40 + kCharWidth * static_cast<double>(n_characters(label));
    if (x > kLeft && x + width > kWidth) {
      x = kLeft;
      y += 22;
    }
    out += "<line class=\"line " + series_class(series) + "\"" + dashes(series) + attribute("x1", x) +
           attribute("y1", y) + attribute("x2", x + 22) + attribute("y2", y) + "/>\n";
    out += marker(series, x + 11, y, name) + text_at("start", x + 28, y + 4.5, label);
    x += width;
  }
  if (!entries.empty()) height = y + 16;
  return out;
}

std::string not_drawn_text(size_t n) {
  return n == 0 ? ""
                : " " + std::to_string(n) + (n == 1 ? " value is" : " values are") +
                      " not drawn: not finite, or not above 0 on a logarithmic axis.";
}

// The element with title and description around `body`.
std::string svg(const std::string& id, const std::string& title, const std::string& description, size_t n_hidden,
                double height, const std::string& body) {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-labelledby=\"" + id + "t " + id +
         "d\" viewBox=\"0 0 " + coordinate(kWidth) + " " + coordinate(height) + "\">\n<title id=\"" + id + "t\">" +
         escaped(title) + "</title>\n<desc id=\"" + id + "d\">" + escaped(description + not_drawn_text(n_hidden)) +
         "</desc>\n" + body + "</svg>\n";
}

double x_of(const PlotScale& scale, double v) { return kLeft + kPlotWidth * scale.position(v); }
double y_of(const PlotScale& scale, double v) { return kBottom - kPlotHeight * scale.position(v); }

std::string y_axis(const PlotScale& scale, const std::string& label) {
  std::string out;
  for (const double tick : ticks_of(scale, 6)) {
    const double y = y_of(scale, tick);
    out += line("grid", kLeft, y, kLeft + kPlotWidth, y) + text_at("end", kLeft - 8, y + 4.5, number_text(tick));
  }
  out += line("axis", kLeft, kTop, kLeft, kBottom);
  const std::string turn = " transform=\"rotate(-90 16 " + coordinate(kTop + kPlotHeight / 2) + ")\"";
  return out + text_at("middle", 16, kTop + kPlotHeight / 2, cut(label, kLabelCharsMax), turn.c_str());
}

std::string x_label(const std::string& label) {
  return text_at("middle", kLeft + kPlotWidth / 2, kBottom + 42, cut(label, 2 * kLabelCharsMax));
}

std::string x_axis(const PlotScale& scale, const std::string& label) {
  std::string out;
  for (const double tick : ticks_of(scale, 8)) {
    const double x = x_of(scale, tick);
    out += line("grid", x, kTop, x, kBottom) + text_at("middle", x, kBottom + 20, number_text(tick));
  }
  return out + line("axis", kLeft, kBottom, kLeft + kPlotWidth, kBottom) + x_label(label);
}

bool shows(const PlotScale& scale, const std::optional<PlotRange>& range) {
  return range && scale.shows(range->low) && scale.shows(range->high);
}

// Bar of a range with caps, upright at x, or level at y.
std::string range_bar(const std::string& style, double x, double y1, double y2, bool upright) {
  const auto stroke = [&](double a, double b, double c, double d) {
    return upright ? line(style.c_str(), a, b, c, d) : line(style.c_str(), b, a, d, c);
  };
  return stroke(x, y1, x, y2) + stroke(x - 3, y1, x + 3, y1) + stroke(x - 3, y2, x + 3, y2);
}

struct Scales {
  PlotScale x, y;
  bool show(const PlotPoint& p) const { return x.shows(p.x) && y.shows(p.y); }
};

Scales scales_of(const LineChart& chart) {
  std::vector<double> xs, ys;
  const auto add = [](std::vector<double>& to, double value, const std::optional<PlotRange>& range) {
    to.push_back(value);
    if (range) to.insert(to.end(), {range->low, range->high});
  };
  for (const PlotSeries& series : chart.series) {
    for (const PlotPoint& p : series.points) {
      add(xs, p.x, p.x_range);
      add(ys, p.y, p.y_range);
    }
  }
  return {scale_of(xs, chart.x.log), scale_of(ys, chart.y.log)};
}

// The line through the points; it is broken where one is not drawn.
std::string polyline(const PlotSeries& series, size_t i, const Scales& scales) {
  std::string path;
  bool pen_down = false;
  for (const PlotPoint& p : series.points) {
    if (!scales.show(p)) {
      pen_down = false;
      continue;
    }
    path += (pen_down ? "L" : "M") + coordinate(x_of(scales.x, p.x)) + " " + coordinate(y_of(scales.y, p.y));
    pen_down = true;
  }
  if (path.empty()) return "";
  return "<path class=\"line " + series_class(i) + "\"" + dashes(i) + " d=\"" + path + "\"/>\n";
}

std::string points(const PlotSeries& series, size_t i, const Scales& scales) {
  std::string out;
  const bool marks = !series.joined || series.points.size() <= kMarkersMax;
  for (const PlotPoint& p : series.points) {
    if (!scales.show(p)) continue;
    const double x = x_of(scales.x, p.x), y = y_of(scales.y, p.y);
    if (shows(scales.y, p.y_range))
      out +=
          range_bar("bar " + series_class(i), x, y_of(scales.y, p.y_range->low), y_of(scales.y, p.y_range->high), true);
    if (shows(scales.x, p.x_range))
      out += range_bar("bar " + series_class(i), y, x_of(scales.x, p.x_range->low), x_of(scales.x, p.x_range->high),
                       false);
    if (!marks) continue;
    const std::string what = p.label.empty() ? series.name : series.name + ", " + p.label;
    out += marker(i, x, y, what + ": " + value_text(p.x, p.x_range) + "; " + value_text(p.y, p.y_range));
  }
  return out;
}

// Names of groups or columns below the axis: as many as fit, none twice as close as another.
std::string group_names(const std::vector<std::string>& names, double step) {
  size_t longest = 1;
  for (const auto& name : names) longest = std::max(longest, n_characters(cut(name, 16)));
  const double need = kCharWidth * static_cast<double>(longest) + 8;
  const auto stride = static_cast<size_t>(std::max(1.0, std::ceil(need / step)));
  std::string out;
  for (size_t i = 0; i < names.size(); i += stride)
    out += text_at("middle", kLeft + (static_cast<double>(i) + 0.5) * step, kBottom + 20, cut(names[i], 16));
  return out;
}

double value_at(const HeatMap& map, size_t row, size_t column) {
  const size_t i = row * map.columns.size() + column;
  return i < map.values.size() ? map.values[i] : std::nan("");
}

std::string rectangle(const std::string& style, double x, double y, double width, double height, double opacity,
                      const std::string& hover) {
  return "<rect class=\"" + style + "\"" + attribute("x", x) + attribute("y", y) + attribute("width", width) +
         attribute("height", height) + (opacity < 1 ? " fill-opacity=\"" + number_text(opacity) + "\"" : "") +
         "><title>" + escaped(hover) + "</title></rect>\n";
}

// Steps of colour with their values, above y.
std::string colour_key(double most, bool negative, const std::string& label, double y) {
  constexpr int kSteps = 5;
  std::string out = text_at("start", kLeft, y + 11, cut(label, kLabelCharsMax));
  double x = kWidth - kRight - 52.0 * (negative ? 2 * kSteps + 1 : kSteps + 1);
  for (int i = negative ? -kSteps : 0; i <= kSteps; ++i, x += 52) {
    const double share = static_cast<double>(i) / kSteps;
    const std::string value = number_text(most * share);
    out += rectangle(i < 0 ? "cold" : "hot", x, y, 52, 14, std::abs(share), value) +
           text_at("middle", x + 26, y + 30, value);
  }
  return out;
}

}  // namespace

std::string value_text(double value, const std::optional<PlotRange>& range) {
  if (!range) return number_text(value);
  return number_text(value) + " [" + number_text(range->low) + ", " + number_text(range->high) + "]";
}

std::string escaped(std::string_view text) {
  std::string out;
  const std::string safe = printable(text);
  for (size_t i = 0; i < safe.size(); ++i) {
    switch (safe[i]) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '\xef':  // U+FFFE and U+FFFF are no characters of XML
        if (safe.compare(i, 3, "\xef\xbf\xbe") == 0 || safe.compare(i, 3, "\xef\xbf\xbf") == 0) {
          out += "\ufffd";
          i += 2;
          break;
        }
        [[fallthrough]];
      default:
        out += safe[i];
    }
  }
  return out;
}

std::string svg_of(const LineChart& chart, const std::string& id) {
  const Scales scales = scales_of(chart);
  std::string body = x_axis(scales.x, chart.x.label) + y_axis(scales.y, chart.y.label);
  std::vector<LegendEntry> entries;
  size_t n_hidden = 0;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const PlotSeries& series = chart.series[i];
    if (series.joined) body += polyline(series, i, scales);
    body += points(series, i, scales);
    entries.push_back({i, series.name});
    n_hidden += static_cast<size_t>(
        std::count_if(series.points.begin(), series.points.end(), [&](const PlotPoint& p) { return !scales.show(p); }));
  }
  double height = kBottom + kBelowAxis;
  body += legend(entries, height);
  return svg(id, chart.title, chart.description, n_hidden, height, body);
}

// Level bars: names of groups are long, and there are many.
std::string svg_of(const BarChart& chart, const std::string& id) {
  std::vector<double> values = {0};
  for (const BarSeries& series : chart.series) {
    for (const PlotBar& bar : series.bars) {
      values.push_back(bar.value);
      if (bar.range) values.insert(values.end(), {bar.range->low, bar.range->high});
    }
  }
  const PlotScale scale = scale_of(values, false);
  size_t longest = 0;
  for (const std::string& group : chart.groups) longest = std::max(longest, n_characters(cut(group, kGroupCharsMax)));
  const double left = 20 + kCharWidth * static_cast<double>(longest);
  const double step = kBarHeight * static_cast<double>(chart.series.size()) + 8;
  const double bottom = kTop + step * static_cast<double>(std::max<size_t>(1, chart.groups.size()));
  const auto x_at = [&](double v) { return left + (kWidth - kRight - left) * scale.position(v); };

  std::string body;
  for (const double tick : ticks_of(scale, 6))
    body += line("grid", x_at(tick), kTop, x_at(tick), bottom) +
            text_at("middle", x_at(tick), bottom + 20, number_text(tick));
  for (size_t g = 0; g < chart.groups.size(); ++g)
    body += text_at("end", left - 8, kTop + step * (static_cast<double>(g) + 0.5) + 4.5,
                    cut(chart.groups[g], kGroupCharsMax));
  std::vector<LegendEntry> entries;
  size_t n_hidden = 0;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const BarSeries& series = chart.series[i];
    entries.push_back({i, series.name});
    for (size_t g = 0; g < std::min(series.bars.size(), chart.groups.size()); ++g) {
      const PlotBar& bar = series.bars[g];
      n_hidden += !scale.shows(bar.value);
      if (!scale.shows(bar.value)) continue;
      const double y = kTop + 4 + step * static_cast<double>(g) + kBarHeight * static_cast<double>(i);
      const double x = x_at(bar.value), zero = x_at(0);
      body += rectangle("fill " + series_class(i), std::min(x, zero), y, std::abs(x - zero), kBarHeight - 1, 1,
                        series.name + ", " + chart.groups[g] + ": " + value_text(bar.value, bar.range));
      if (shows(scale, bar.range))
        body += range_bar("ink", y + kBarHeight / 2, x_at(bar.range->low), x_at(bar.range->high), false);
    }
  }
  body += line("axis", x_at(0), kTop, x_at(0), bottom) +
          text_at("middle", (left + kWidth - kRight) / 2, bottom + 42, cut(chart.value_label, kLabelCharsMax));
  double height = bottom + kBelowAxis;
  body += legend(entries, height);
  return svg(id, chart.title, chart.description, n_hidden, height, body);
}

std::string svg_of(const HeatMap& map, const std::string& id) {
  const size_t n_rows = map.rows.size(), n_columns = map.columns.size();
  double most = 0;
  bool negative = false;
  size_t n_hidden = 0;
  for (size_t i = 0; i < n_rows * n_columns; ++i) {
    const double v = value_at(map, i / n_columns, i % n_columns);
    n_hidden += i < map.values.size() && !std::isfinite(v);
    if (!std::isfinite(v)) continue;
    most = std::max(most, std::abs(v));
    negative = negative || v < 0;
  }
  const double width = kPlotWidth / static_cast<double>(std::max<size_t>(1, n_columns));
  const double height = kPlotHeight / static_cast<double>(std::max<size_t>(1, n_rows));
  const auto label_stride = static_cast<size_t>(std::max(1.0, std::ceil(18 / height)));
  std::string body;
  for (size_t r = 0; r < n_rows; ++r) {
    const double y = kTop + height * static_cast<double>(r);
    if (r % label_stride == 0) body += text_at("end", kLeft - 8, y + height / 2 + 4.5, cut(map.rows[r], 8));
    for (size_t c = 0; c < n_columns; ++c) {
      const double v = value_at(map, r, c);
      if (!std::isfinite(v)) continue;
      body += rectangle(v < 0 ? "cold" : "hot", kLeft + width * static_cast<double>(c), y, width, height,
                        most > 0 ? std::abs(v) / most : 0, map.rows[r] + ", " + map.columns[c] + ": " + number_text(v));
    }
  }
  const std::string turn = " transform=\"rotate(-90 16 " + coordinate(kTop + kPlotHeight / 2) + ")\"";
  body += text_at("middle", 16, kTop + kPlotHeight / 2, cut(map.row_label, kLabelCharsMax), turn.c_str());
  body += group_names(map.columns, width) + x_label(map.column_label);
  body += colour_key(most, negative, map.value_label, kBottom + kBelowAxis + 4);
  return svg(id, map.title, map.description, n_hidden, kBottom + kBelowAxis + 42, body);
}

}  // namespace cento

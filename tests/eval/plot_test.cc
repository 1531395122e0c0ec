#include "eval/plot.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "base/rng.h"
#include "eval/plot_scale.h"
#include "support/xml.h"

namespace cento {
namespace {

using Catch::Contains;
using test::count_of;
using test::xml_fault;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

TEST_CASE("plot: ticks are round values, written where they belong", "[eval]") {
  struct Row {
    PlotScale scale;
    std::vector<double> ticks;
  };
  const std::vector<Row> rows = {
      {{0, 1, false}, {0, 0.2, 0.4, 0.6, 0.8, 1}},
      {{0, 0.047, false}, {0, 0.01, 0.02, 0.03, 0.04}},
      {{-3, 3, false}, {-3, -2, -1, 0, 1, 2, 3}},  // and no minus zero
      {{980, 6300, false}, {1000, 2000, 3000, 4000, 5000, 6000}},
      {{0.0009, 0.11, true}, {0.001, 0.01, 0.1}},
      {{0.9, 21, true}, {1, 2, 5, 10, 20}},
      {{2, 3, true}, {2, 2.2, 2.4, 2.6, 2.8, 3}},
      {{1e-12, 1, true}, {1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.scale.low, row.scale.high, row.scale.log);
    const auto ticks = ticks_of(row.scale, 6);
    REQUIRE(ticks.size() == row.ticks.size());
    for (size_t i = 0; i < ticks.size(); ++i) {
      CHECK(ticks[i] == Approx(row.ticks[i]).epsilon(1e-9));
      CHECK((ticks[i] != 0 || !std::signbit(ticks[i])));
    }
  }
}

TEST_CASE("plot: a scale holds its values, whatever they are", "[eval]") {
  Rng rng(4);
  const std::vector<double> odd = {0, -0.0,           1,    -1,  1e-320, 1e300, -1e300, 1.7e308, -1.7e308,
                                   5, 5.000000000001, kNaN, kInf};
  for (int round = 0; round < 4000; ++round) {
    std::vector<double> values;
    for (uint64_t n = rng.below(4); n > 0; --n) {
      const double any = std::ldexp(2 * rng.uniform() - 1, static_cast<int>(rng.below(2000)) - 1000);
      values.push_back(rng.below(2) == 0 ? odd[rng.below(odd.size())] : any);
    }
    for (const bool log : {false, true}) {
      CAPTURE(values, log);
      const PlotScale scale = scale_of(values, log);
      REQUIRE((std::isfinite(scale.low) && std::isfinite(scale.high) && scale.low < scale.high));
      REQUIRE((!log || scale.low > 0));
      const auto ticks = ticks_of(scale, 1 + rng.below(12));
      REQUIRE((!ticks.empty() && ticks.size() <= 20));
      for (size_t i = 0; i < ticks.size(); ++i) {
        REQUIRE((scale.position(ticks[i]) > -1e-6 && scale.position(ticks[i]) < 1 + 1e-6));
        REQUIRE((i == 0 || ticks[i] > ticks[i - 1]));
      }
      for (const double v : values) {
        if (!scale.shows(v) || std::abs(v) > 1e250 || (log && v < 1e-250)) continue;
        REQUIRE((scale.position(v) >= 0 && scale.position(v) <= 1));
      }
    }
  }
}

TEST_CASE("plot: linear axes begin at zero where the data come near it", "[eval]") {
  CHECK(scale_of(std::vector<double>{0.01, 0.2}, false).low == 0);
  CHECK(scale_of(std::vector<double>{-3, -0.1}, false).high == 0);
  CHECK(scale_of(std::vector<double>{0.9, 1}, false).low > 0.8);
  CHECK(scale_of(std::vector<double>{-1, 1}, false).low < -1);
}

TEST_CASE("plot: numbers are short and the same everywhere", "[eval]") {
  struct Row {
    double value;
    const char* text;
  };
  for (const Row& row : std::vector<Row>{{0, "0"},
                                         {-0.0, "0"},
                                         {1, "1"},
                                         {0.012345678, "0.01235"},
                                         {1234567, "1.235e6"},
                                         {1.5e-7, "1.5e-7"},
                                         {-2e10, "-2e10"},
                                         {1e100, "1e100"},
                                         {100, "100"},
                                         {kInf, "infinite"},
                                         {-kInf, "-infinite"},
                                         {kNaN, "-"}}) {
    CHECK(number_text(row.value) == row.text);
  }
}

TEST_CASE("plot: escaped text is text in elements and attributes", "[eval]") {
  CHECK(escaped("<script>alert(\"1\" & '2')</script>") ==
        "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;");
  CHECK(escaped("caf\u00e9 \u6771\u4eac") == "caf\u00e9 \u6771\u4eac");
  CHECK(escaped(std::string("a\0b\x1b[31m\n\xff", 10)) == "a\\x00b\\x1b[31m\\n\\xff");
  CHECK(escaped("\xef\xbf\xbe\xef\xbf\xbf\xef\xbc\xa1") == "\ufffd\ufffd\uff21");  // U+FFFE, U+FFFF; full-width A stays
  CHECK(escaped("\u202e") == "\\u{202e}");
}

const std::string kEvil = "<script>alert(1)</script>\"'&]]>\xff\x01";

LineChart sample_lines() {
  LineChart chart;
  chart.title = "Quality against time to first token";
  chart.description = "KL falls as more rows are recomputed.";
  chart.x = {"TTFT, ms", false};
  chart.y = {"KL, nats", true};
  chart.series = {{"query",
                   {{100, 0.03, {}, PlotRange{0.02, 0.05}, "r = .05"},
                    {200, 0.01, PlotRange{190, 230}, PlotRange{0.005, 0.02}, "r = .15"}},
                   true},
                  {"dev-kv", {{110, 0.1, {}, {}, ""}, {220, 0.07, {}, {}, ""}}, true}};
  return chart;
}

TEST_CASE("plot: a line chart draws every point, line and error bar", "[eval]") {
  const std::string svg = svg_of(sample_lines(), "p1");
  CHECK(xml_fault(svg) == "");
  CHECK_THAT(svg, Contains("aria-labelledby=\"p1t p1d\"") && Contains("<title id=\"p1t\">Quality against") &&
                      Contains("<desc id=\"p1d\">KL falls as"));
  CHECK(count_of(svg, "<path class=\"line c0\"") == 1);
  CHECK(count_of(svg, "<path class=\"line c1\"") == 1);
  CHECK(count_of(svg, "<circle class=\"fill c0\"") == 2 + 1);  // points and legend
  CHECK(count_of(svg, "<path class=\"fill c1\"") == 2 + 1);
  CHECK(count_of(svg, "class=\"bar c0\"") == 3 * 3);  // a stroke and two caps each
  CHECK(count_of(svg, "class=\"bar c1\"") == 0);
  CHECK_THAT(svg, Contains("<title>query, r = .05: 100; 0.03 [0.02, 0.05]</title>"));
  CHECK_THAT(svg, Contains(">0.01</text>") && Contains(">0.1</text>"));  // decades
  CHECK_THAT(svg, !Contains("nan") && !Contains("inf") && !Contains("not drawn"));
}

// Places of the circles' centres.
std::vector<std::pair<double, double>> circles(const std::string& svg) {
  std::vector<std::pair<double, double>> out;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) {
    out.emplace_back(std::stod(svg.substr(svg.find("cx=\"", at) + 4)),
                     std::stod(svg.substr(svg.find("cy=\"", at) + 4)));
  }
  return out;
}

TEST_CASE("plot: places are in proportion, on a logarithmic axis to the logarithm", "[eval]") {
  LineChart chart;
  chart.y.log = true;
  chart.series = {{"s", {{1, 0.001, {}, {}, ""}, {2, 0.01, {}, {}, ""}, {4, 1, {}, {}, ""}}, true}};
  const auto at = circles(svg_of(chart, "p"));
  REQUIRE(at.size() == 4);  // and the legend's
  // Coordinates have one decimal: differences are right to 0.1, a third and two thirds of them to 0.3.
  CHECK(std::abs(2 * (at[1].first - at[0].first) - (at[2].first - at[1].first)) <= 0.3);
  CHECK(std::abs(2 * (at[0].second - at[1].second) - (at[1].second - at[2].second)) <= 0.3);
  CHECK(at[0].second > at[2].second);  // up is more
  CHECK(at[0].first < at[2].first);
}

TEST_CASE("plot: what cannot be drawn is left out, said, and breaks the line", "[eval]") {
  LineChart chart = sample_lines();
  chart.series[1].points = {{1, 1, {}, {}, ""},    {2, 0, {}, {}, ""},    {3, 1, {}, {}, ""},
                            {4, kNaN, {}, {}, ""}, {kInf, 1, {}, {}, ""}, {5, 2, {}, PlotRange{0, 3}, ""}};
  const std::string svg = svg_of(chart, "p1");
  CHECK(xml_fault(svg) == "");
  CHECK_THAT(svg, Contains("3 values are not drawn"));
  CHECK(count_of(svg, "<path class=\"fill c1\"") == 3 + 1);
  const size_t line = svg.find("<path class=\"line c1\"");
  CHECK(count_of(svg.substr(line, svg.find("/>", line) - line), "M") == 3);  // 1 | 3 | 5
  CHECK(count_of(svg, "class=\"bar c1\"") == 0);  // a range down to 0 has no end on a logarithmic axis
}

TEST_CASE("plot: empty charts and charts of odd values are well-formed", "[eval]") {
  for (const std::string& svg : {svg_of(LineChart{}, "a"), svg_of(BarChart{}, "b"), svg_of(HeatMap{}, "c")}) {
    CHECK(xml_fault(svg) == "");
    CHECK_THAT(svg, !Contains("nan") && !Contains("inf"));
  }
  for (const double v : {0.0, kNaN, kInf, -kInf, 1e308, -1e308, 1e-320}) {
    CAPTURE(v);
    LineChart lines;
    lines.series = {{"s", {{v, v, PlotRange{v, v}, PlotRange{v, v}, ""}, {1, 1, {}, {}, ""}}, true}};
    BarChart bars;
    bars.groups = {"g", "h"};
    bars.series = {{"s", {{v, PlotRange{v, 1}}, {1, {}}}}};
    HeatMap map;
    map.rows = map.columns = {"0", "1"};
    map.values = {v, 1, v};
    for (const std::string& svg : {svg_of(lines, "a"), svg_of(bars, "b"), svg_of(map, "c")}) {
      CHECK(xml_fault(svg) == "");
      CHECK_THAT(svg, !Contains("\"nan") && !Contains("\"-nan") && !Contains("\"inf") && !Contains("\"-inf"));
    }
  }
}

TEST_CASE("plot: names from data stay text", "[eval]") {
  LineChart lines = sample_lines();
  lines.title = lines.description = lines.x.label = lines.y.label = kEvil;
  lines.series[0].name = lines.series[0].points[0].label = kEvil;
  BarChart bars{kEvil, kEvil, kEvil, {kEvil}, {{kEvil, {{1, {}}}}}};
  HeatMap map{kEvil, kEvil, kEvil, kEvil, kEvil, {kEvil}, {kEvil}, {1}};
  for (const std::string& svg : {svg_of(lines, "a"), svg_of(bars, "b"), svg_of(map, "c")}) {
    CHECK(xml_fault(svg) == "");
    CHECK_THAT(svg, !Contains("<script") && Contains("&lt;script"));
  }
}

TEST_CASE("plot: bars begin at zero, to the right or the left, beside their names", "[eval]") {
  const std::string kGroup = "dev-kv r=0.375..0.125 exact-first";  // as long as a setting's name gets
  BarChart chart{
      "t", "d", "F1", {"a", kGroup}, {{"one", {{0.5, PlotRange{0.4, 0.6}}, {-0.25, {}}}}, {"two", {{0.25, {}}}}}};
  const std::string svg = svg_of(chart, "b");
  CHECK(xml_fault(svg) == "");
  CHECK(count_of(svg, "<rect class=\"fill c0\"") == 2);
  CHECK(count_of(svg, "<rect class=\"fill c1\"") == 1);
  CHECK(count_of(svg, "class=\"ink\"") == 3);
  const auto number = [&](size_t at, const char* name) {
    return std::stod(svg.substr(svg.find(name, at) + std::string(name).size()));
  };
  const size_t right = svg.find("<rect"), left = svg.find("<rect", right + 1);
  const double zero = number(right, " x=\"");  // coordinates have one digit behind the point
  CHECK(std::abs(number(left, " x=\"") + number(left, " width=\"") - zero) < 0.3);
  CHECK(std::abs(number(right, " width=\"") - 2 * number(left, " width=\"")) < 0.3);
  CHECK(number(left, " y=\"") > number(right, " y=\"") + 24);  // below both bars of the first group
  CHECK_THAT(svg, Contains(">" + kGroup + "</text>"));
}

TEST_CASE("plot: a heat map colours by size and sign", "[eval]") {
  HeatMap map{"t", "d", "layer", "layer", "r", {"0", "1"}, {"0", "1"}, {1, -0.5, 0, kNaN}};
  const std::string svg = svg_of(map, "h");
  CHECK(xml_fault(svg) == "");
  CHECK_THAT(svg, Contains("<title>0, 0: 1</title>") && Contains("fill-opacity=\"0.5\"><title>0, 1: -0.5</title>") &&
                      Contains("fill-opacity=\"0\"><title>1, 0: 0</title>") && Contains("1 value is not drawn"));
  CHECK_THAT(svg, !Contains("1, 1: "));
}

TEST_CASE("plot: twenty series differ in more than colour", "[eval]") {
  LineChart chart;
  for (int i = 0; i < 20; ++i)
    chart.series.push_back({"a series with a rather long name, longer than fits " + std::to_string(i),
                            {{1, 1.0 + i, {}, {}, ""}, {2, 2.0 + i, {}, {}, ""}},
                            true});
  const std::string svg = svg_of(chart, "p");
  CHECK(xml_fault(svg) == "");
  CHECK(count_of(svg, "stroke-dasharray=\"7 4\"") == 2 * 8);  // line and legend of series 8 to 15
  CHECK(count_of(svg, "stroke-dasharray=\"2 3\"") == 2 * 4);
  CHECK_THAT(svg, Contains("\u2026</text>"));
  // The legend's rows are inside the drawing.
  const double height = std::stod(svg.substr(svg.find("viewBox=\"0 0 760.0 ") + 19));
  for (size_t at = svg.find(" y=\""); at != std::string::npos; at = svg.find(" y=\"", at + 1))
    CHECK(std::stod(svg.substr(at + 4)) < height);
}

}  // namespace
}  // namespace cento

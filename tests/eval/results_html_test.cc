#include "eval/results_html.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>

#include "support/shared_data.h"
#include "support/xml.h"

namespace cento {
namespace {

using Catch::Contains;
using test::count_of;
using test::xml_fault;

const std::string kEvil = "<script>alert(1)</script>\"'&]]>\xff";

// Charts of the kinds that an evaluation makes.
ResultsReport sample_report() {
  LineChart quality;
  quality.title = "KL against time to first token";
  quality.description = "Each policy's ratios, from left to right.";
  quality.x = {"TTFT, ms (median)", false};
  quality.y = {"KL to full prefill, nats (mean, 95 %)", true};
  LineChart position;
  position.title = "KL by position in the answer";
  position.description = "One line a policy, over 24 tokens.";
  position.x.label = "position";
  position.y.label = "KL, nats";
  BarChart answers{"Answer quality", "F1 beside that of full prefill.", "F1", {"hotpotqa", "musique"}, {}};
  const char* names[] = {"none", "dev-kv", "query", "query, stand-in"};
  for (int s = 0; s < 4; ++s) {
    PlotSeries ratios{names[s], {}, true}, rows{names[s], {}, true};
    for (int i = 1; i <= 4; ++i) {
      const double kl = 0.2 / (1 + s) * std::exp(-0.4 * i * s);
      ratios.points.push_back({400.0 + 150 * i, kl, PlotRange{390.0 + 150 * i, 420.0 + 150 * i},
                               PlotRange{0.6 * kl, 1.5 * kl}, "r = ." + std::to_string(5 * i)});
    }
    for (int i = 0; i < 24; ++i) rows.points.push_back({1.0 * i, 0.1 / (1 + s) * (1 + std::sin(i + s)), {}, {}, ""});
    quality.series.push_back(ratios);
    position.series.push_back(rows);
    answers.series.push_back({names[s],
                              {{0.3 + 0.1 * s, PlotRange{0.2 + 0.1 * s, 0.42 + 0.1 * s}},
                               {0.25 + 0.08 * s, PlotRange{0.15 + 0.08 * s, 0.35 + 0.08 * s}}}});
  }
  HeatMap layers{
      "Correlation of deviation between layers", "High near the diagonal.", "layer", "layer", "Spearman", {}, {}, {}};
  for (int r = 0; r < 24; ++r) {
    layers.rows.push_back(std::to_string(r));
    layers.columns.push_back(std::to_string(r));
    for (int c = 0; c < 24; ++c) layers.values.push_back(std::cos(0.13 * (r - c)));
  }
  return {"Evaluation",
          {{"model", "SmolLM2-135M"}, {"data", "hotpotqa, 40 items"}},
          {{"Quality",
            {std::string("Reference: full prefill."), quality, position, answers,
             ReportTable{"By setting", {"setting", "KL"}, {{"none", "0.116"}, {"query", "0.028"}}}}},
           {"Deviation", {layers}}}};
}

TEST_CASE("results page: well-formed, complete, and loads nothing", "[eval]") {
  const std::string html = results_html(sample_report());
  CHECK(xml_fault(html) == "");
  CHECK(html.starts_with("<!DOCTYPE html>\n<html lang=\"en\""));
  CHECK(count_of(html, "<svg ") == 4);
  CHECK(count_of(html, "<desc ") == 4);
  CHECK(count_of(html, "<table>") == 6);  // one a chart, the facts, the one by setting
  CHECK_THAT(html, Contains("prefers-color-scheme:dark") && Contains("default-src 'none'"));
  // The only addresses are names of XML languages.
  CHECK(count_of(html, "http") == 1 + 4 + 1);  // html, each svg; http-equiv
  for (const char* word : {"<script", " src=", " href=", "url(", "@import", " onload", " onclick"}) {
    CAPTURE(word);
    CHECK(count_of(html, word) == 0);
  }
  // To be looked at: the page as a file, where this names one.
  if (const char* path = std::getenv("CENTO_TEST_REPORT")) test::write_all(path, html);
}

TEST_CASE("results page: the table below a chart has its figures", "[eval]") {
  const ResultsReport report = sample_report();
  const ReportTable lines = table_of(std::get<LineChart>(report.sections[0].parts[1]));
  CHECK(lines.columns ==
        std::vector<std::string>{"Series", "Point", "TTFT, ms (median)", "KL to full prefill, nats (mean, 95 %)"});
  REQUIRE(lines.rows.size() == 16);
  CHECK(lines.rows[0] == std::vector<std::string>{"none", "r = .5", "550 [540, 570]", "0.2 [0.12, 0.3]"});
  const ReportTable position = table_of(std::get<LineChart>(report.sections[0].parts[2]));
  CHECK(position.columns.size() == 3);  // no point has a name
  const ReportTable bars = table_of(std::get<BarChart>(report.sections[0].parts[3]));
  CHECK(bars.columns == std::vector<std::string>{"F1", "none", "dev-kv", "query", "query, stand-in"});
  CHECK(bars.rows[1][1] == "0.25 [0.15, 0.35]");
  const HeatMap map{"", "", "to", "from", "", {"a", "b"}, {"c", "d"}, {1, std::nan(""), 3}};
  const ReportTable cells = table_of(map);
  CHECK(cells.columns == std::vector<std::string>{"from / to", "a", "b"});
  CHECK(cells.rows == std::vector<std::vector<std::string>>{{"c", "1", ""}, {"d", "3", ""}});
  BarChart ragged{"", "", "v", {"a", "b"}, {{"s", {{1, {}}}}}};
  CHECK(table_of(ragged).rows[1] == std::vector<std::string>{"b", ""});
}

TEST_CASE("results page: columns of figures are set as figures, those with a name in them as text", "[eval]") {
  const ReportTable table{
      "",
      {"setting", "KL", "item", "F1"},
      {{"1", "0.1 [0.05, 0.2]", "2", "-"}, {"2", "1e-7", "2wiki", "0.3"}, {"3", "1", "", "1", "2"}}};
  const std::string html = results_html({"t", {}, {{"s", {table}}}});
  CHECK_THAT(html, Contains("<th scope=\"col\" class=\"n\">KL</th><th scope=\"col\">item</th>"
                            "<th scope=\"col\" class=\"n\">F1</th>"));
  CHECK_THAT(html, Contains("<th scope=\"row\">1</th><td class=\"n\">0.1 [0.05, 0.2]</td><td>2</td>"
                            "<td class=\"n\">-</td>"));
  CHECK_THAT(html, Contains("<td>2wiki</td>"));
  const std::string name(45, 'x');  // no blank to break it at
  CHECK_THAT(results_html({"t", {{"a", name}}, {}}), Contains("<td class=\"long\">" + name + "</td>"));
}

TEST_CASE("results page: whatever data holds stays text", "[eval]") {
  LineChart chart;
  chart.title = chart.description = chart.x.label = chart.y.label = kEvil;
  chart.series = {{kEvil, {{1, 1, {}, {}, kEvil}}, true}};
  const ResultsReport report{
      kEvil, {{kEvil, kEvil}}, {{kEvil, {kEvil, chart, ReportTable{kEvil, {kEvil}, {{kEvil, kEvil}}}}}}};
  const std::string html = results_html(report);
  CHECK(xml_fault(html) == "");
  CHECK(count_of(html, "<script") == 0);
  CHECK(count_of(html, "&lt;script&gt;") > 10);
  CHECK(xml_fault(results_html({})) == "");
}

TEST_CASE("results page: the checker of these tests sees what is wrong", "[eval]") {
  CHECK(xml_fault("<!DOCTYPE html>\n<a b=\"1\" c-d=\"&lt;\"><e/>x &amp; y</a>\n") == "");
  for (const char* bad : {"", "text", "<a>", "<a></b>", "<a/><b/>", "<a b=1/>", "<a b=\"1\" b=\"2\"/>", "<a b=\"<\"/>",
                          "<a>&nbsp;</a>", "<a>&</a>", "<a>]]></a>", "<a b=\"1/>", "<a", "<a\x01/>", "<\xff/>",
                          "<a><b id=\"x\"/><c id=\"x\"/></a>", "<a b=\"1\"c=\"2\"/>"}) {
    CAPTURE(bad);
    CHECK(xml_fault(bad) != "");
  }
}

}  // namespace
}  // namespace cento

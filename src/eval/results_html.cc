#include "eval/results_html.h"

#include <cmath>

#include "eval/plot_scale.h"

namespace cento {
namespace {

constexpr size_t kOpenRowsMax = 12;   // a longer table below a chart is folded
constexpr size_t kLineBytesMax = 44;  // of a cell's text that is not broken into lines

// c0..c7: series; contrast to the background is above 4 to 1 in both schemes. cold and hot: cells of a heat map.
constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--page:#fff;--ink:#1c1c1e;--soft:#5f6368;--rule:#d5d7da;--band:#f4f5f6;
--c0:#0b62ad;--c1:#b8480a;--c2:#08734f;--c3:#a0447f;--c4:#7d6000;--c5:#5a4fcf;--c6:#a02c2c;--c7:#565656}
@media(prefers-color-scheme:dark){:root{--page:#17181a;--ink:#ececee;--soft:#a9adb3;--rule:#3c4045;--band:#202226;
--c0:#62b4f2;--c1:#ff9a5c;--c2:#3fcf9f;--c3:#e79ccb;--c4:#e0b93b;--c5:#a9a0ff;--c6:#ff8f8f;--c7:#c0c0c0}}
body{margin:0 auto;padding:1.5rem 1rem 4rem;max-width:80rem;font:16px/1.5 system-ui,sans-serif;background:var(--page);color:var(--ink)}
h1,h2,p{max-width:60rem;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.25}h2{font-size:1.25rem;margin-top:2.5rem}
figure{margin:1.5rem 0}figcaption{font-weight:600;margin-bottom:.4rem}
svg{display:block;width:100%;min-width:38rem;max-width:60rem;height:auto}
svg text{font:13px system-ui,sans-serif;fill:var(--ink)}
.grid{stroke:var(--rule);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}.ink{stroke:var(--ink);stroke-width:1.2}
.line{fill:none;stroke-width:2;stroke:var(--c)}.bar{stroke-width:1.3;stroke:var(--c)}.fill{fill:var(--c)}
.hot{fill:var(--c1)}.cold{fill:var(--c0)}.hot,.cold{shape-rendering:crispEdges}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding:.4rem 0}
th,td{padding:.25rem .4rem;border-bottom:1px solid var(--rule);text-align:left;vertical-align:top;white-space:nowrap}
.n{text-align:right}.long{white-space:normal;overflow-wrap:anywhere;min-width:16rem}
tbody tr:nth-child(even){background:var(--band)}
summary{cursor:pointer;color:var(--soft)}
@media print{body{max-width:none}figure{break-inside:avoid}}
)";

// A number, with its interval or without; not a name.
bool is_figure(const std::string& cell) {
  return cell.size() < 64 && cell.find_first_not_of("0123456789.,+-e[] ") == std::string::npos;
}

// Columns of figures stand at the right edge. [columns]
std::vector<bool> figure_columns(const ReportTable& table) {
  std::vector<bool> out(table.columns.size(), true);
  if (!out.empty()) out[0] = false;
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < std::min(row.size(), out.size()); ++i) out[i] = out[i] && is_figure(row[i]);
  }
  return out;
}

// Short texts stay on one line, long ones are broken wherever they must.
std::string cell(const std::string& tag, const std::string& scope, bool figure, const std::string& text) {
  const char* style = figure ? " class=\"n\"" : text.size() > kLineBytesMax ? " class=\"long\"" : "";
  return "<" + tag + scope + style + ">" + escaped(text) + "</" + tag + ">";
}

std::string row_of(const std::vector<std::string>& cells, const std::vector<bool>& figures) {
  std::string out = "<tr>";
  for (size_t i = 0; i < cells.size(); ++i)
    out += i == 0 ? cell("th", " scope=\"row\"", false, cells[i])
                  : cell("td", "", i < figures.size() && figures[i], cells[i]);
  return out + "</tr>\n";
}

std::string html_of(const ReportTable& table) {
  const std::vector<bool> figures = figure_columns(table);
  std::string out = "<div class=\"wide\"><table>\n";
  if (!table.title.empty()) out += "<caption>" + escaped(table.title) + "</caption>\n";
  out += "<thead><tr>";
  for (size_t i = 0; i < table.columns.size(); ++i) out += cell("th", " scope=\"col\"", figures[i], table.columns[i]);
  out += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) out += row_of(row, figures);
  return out + "</tbody>\n</table></div>\n";
}

std::string html_of(const std::string& paragraph) { return "<p>" + escaped(paragraph) + "</p>\n"; }

template <class Chart>
std::string figure_of(const Chart& chart, const std::string& id) {
  const ReportTable table = table_of(chart);
  return "<figure>\n<figcaption>" + escaped(chart.title) + "</figcaption>\n<div class=\"wide\">" + svg_of(chart, id) +
         "</div>\n<details" + (table.rows.size() <= kOpenRowsMax ? " open=\"open\"" : "") +
         "><summary>Figures of this chart</summary>\n" + html_of(table) + "</details>\n</figure>\n";
}

std::string html_of(const ReportPart& part, const std::string& id) {
  return std::visit(
      [&](const auto& p) -> std::string {
        using Part = std::decay_t<decltype(p)>;
        if constexpr (std::is_same_v<Part, std::string> || std::is_same_v<Part, ReportTable>)
          return html_of(p);
        else
          return figure_of(p, id);
      },
      part);
}

std::string corner(const std::string& rows, const std::string& columns) {
  return rows.empty() || columns.empty() ? rows + columns : rows + " / " + columns;
}

}  // namespace

ReportTable table_of(const LineChart& chart) {
  ReportTable table{"", {"Series"}, {}};
  bool labels = false;
  for (const PlotSeries& series : chart.series) {
    for (const PlotPoint& p : series.points) labels = labels || !p.label.empty();
  }
  if (labels) table.columns.push_back("Point");
  table.columns.insert(table.columns.end(), {chart.x.label, chart.y.label});
  for (const PlotSeries& series : chart.series) {
    for (const PlotPoint& p : series.points) {
      table.rows.push_back({series.name});
      if (labels) table.rows.back().push_back(p.label);
      table.rows.back().push_back(value_text(p.x, p.x_range));
      table.rows.back().push_back(value_text(p.y, p.y_range));
    }
  }
  return table;
}

ReportTable table_of(const BarChart& chart) {
  ReportTable table{"", {chart.value_label}, {}};
  for (const BarSeries& series : chart.series) table.columns.push_back(series.name);
  for (size_t g = 0; g < chart.groups.size(); ++g) {
    table.rows.push_back({chart.groups[g]});
    for (const BarSeries& series : chart.series)
      table.rows.back().push_back(g < series.bars.size() ? value_text(series.bars[g].value, series.bars[g].range) : "");
  }
  return table;
}

ReportTable table_of(const HeatMap& map) {
  ReportTable table{"", {corner(map.row_label, map.column_label)}, {}};
  table.columns.insert(table.columns.end(), map.columns.begin(), map.columns.end());
  for (size_t r = 0; r < map.rows.size(); ++r) {
    table.rows.push_back({map.rows[r]});
    for (size_t c = 0; c < map.columns.size(); ++c) {
      const size_t i = r * map.columns.size() + c;
      table.rows.back().push_back(i < map.values.size() && !std::isnan(map.values[i]) ? number_text(map.values[i])
                                                                                      : "");
    }
  }
  return table;
}

std::string results_html(const ResultsReport& report) {
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      // Whatever might slip in, a browser runs no script of this page and loads nothing for it.
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
      "<title>" +
      escaped(report.title) + "</title>\n<style>" + kStyle + "</style>\n</head>\n<body>\n<h1>" + escaped(report.title) +
      "</h1>\n";
  if (!report.facts.empty()) {
    ReportTable facts{"What was run", {"Fact", "Value"}, {}};
    for (const auto& [name, value] : report.facts) facts.rows.push_back({name, value});
    out += html_of(facts);
  }
  size_t n = 0;
  for (const ReportSection& section : report.sections) {
    out += "<section>\n<h2>" + escaped(section.heading) + "</h2>\n";
    for (const ReportPart& part : section.parts) out += html_of(part, "chart" + std::to_string(++n));
    out += "</section>\n";
  }
  return out + "</body>\n</html>\n";
}

}  // namespace cento

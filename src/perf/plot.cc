// The plot: a panel for each quantity, with sizes on the x axis in powers of two.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "perf/report.h"

namespace softhca::perf {

namespace {

constexpr double kWidth = 760, kHeight = 300, kLeft = 90, kRight = 20, kTop = 44, kBottom = 50;
constexpr std::string_view kColors[] = {"#1f6fb2", "#c8502d", "#4c8a3f"};

struct Point {
  double size;  ///< bytes
  double value;
};
struct Line {
  std::string name;
  std::vector<Point> points;
};
struct Panel {
  std::string title;
  std::string unit;
  std::vector<Line> lines;
};

std::string size_name(double bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:g} MiB", bytes / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:g} KiB", bytes / (1 << 10));
  return fmt::format("{:g}", bytes);
}

/// A logarithmic scale with powers of 10 below and above all values.
class Scale {
 public:
  explicit Scale(const Panel& panel) {
    for (const auto& line : panel.lines) {
      for (const auto& point : line.points) {
        low_size_ = std::min(low_size_, point.size);
        high_size_ = std::max(high_size_, point.size);
        if (point.value <= 0) continue;
        low_ = std::min(low_, std::floor(std::log10(point.value)));
        high_ = std::max(high_, std::ceil(std::log10(point.value)));
      }
    }
    if (low_ >= high_) low_ = high_ - 1;
  }
  double x(double size) const {
    const auto span = std::log2(high_size_ / low_size_);
    const auto part = span > 0 ? std::log2(size / low_size_) / span : 0.5;
    return kLeft + part * (kWidth - kLeft - kRight);
  }
  double y(double value) const {
    const auto part = (std::log10(std::max(value, 1e-9)) - low_) / (high_ - low_);
    return kHeight - kBottom - std::clamp(part, 0.0, 1.0) * (kHeight - kTop - kBottom);
  }
  double low() const { return low_; }
  double high() const { return high_; }
  double low_size() const { return low_size_; }
  double high_size() const { return high_size_; }

 private:
  double low_size_ = 1e18, high_size_ = 0;
  double low_ = 1e9, high_ = -1e9;
};

std::string grid(const Scale& scale) {
  std::string text;
  for (auto power = scale.low(); power <= scale.high(); ++power) {
    const auto value = std::pow(10, power);
    const auto y = scale.y(value);
    text += fmt::format(
        "<line x1=\"{0}\" y1=\"{2:.1f}\" x2=\"{1}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:g}</text>\n",
        kLeft, kWidth - kRight, y, kLeft - 8, y + 4, value);
  }
  const auto every = scale.high_size() / scale.low_size() > 1 << 12 ? 4 : 2;
  for (auto size = scale.low_size(); size <= scale.high_size(); size *= every) {
    text += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                        scale.x(size), kHeight - kBottom + 20, size_name(size));
  }
  return text;
}

std::string draw(const Panel& panel) {
  const Scale scale(panel);
  auto text = fmt::format("<text x=\"{}\" y=\"20\" font-weight=\"bold\">{} [{}]</text>\n", kLeft,
                          panel.title, panel.unit);
  text += grid(scale);
  for (std::size_t i = 0; i != panel.lines.size(); ++i) {
    const auto& line = panel.lines[i];
    const auto color = kColors[i % std::size(kColors)];
    std::string points;
    for (const auto& point : line.points) {
      points += fmt::format("{:.1f},{:.1f} ", scale.x(point.size), scale.y(point.value));
      text += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n",
                          scale.x(point.size), scale.y(point.value), color);
    }
    text +=
        fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n",
                    points, color);
    text += fmt::format("<text x=\"{}\" y=\"36\" fill=\"{}\">{}</text>\n",
                        kLeft + 130.0 * static_cast<double>(i), color, line.name);
  }
  return text +
         fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">bytes of a message</text>\n",
                     kWidth - kRight, kHeight - 8);
}

}  // namespace

std::string to_svg(const Report& report) {
  const auto& options = report.options;
  std::vector<Panel> panels;
  if (!report.latencies.empty()) {
    Line typical{"median", {}}, tail{"99 %", {}};
    for (const auto& r : report.latencies) {
      typical.points.push_back({static_cast<double>(r.size), r.typical});
      tail.points.push_back({static_cast<double>(r.size), r.p99});
    }
    panels.push_back({"latency", "microseconds", {typical, tail}});
  }
  if (!report.bandwidths.empty()) {
    Line average{"average", {}}, peak{"peak", {}};
    for (const auto& r : report.bandwidths) {
      average.points.push_back({static_cast<double>(r.size), r.average / (1 << 20)});
      peak.points.push_back({static_cast<double>(r.size), r.peak / (1 << 20)});
    }
    panels.push_back({"bandwidth", "MiB a second", {average}});
    if (!options.output.no_peak) panels.back().lines.push_back(peak);
  }
  auto text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{}\" y=\"18\" font-size=\"14\">{} {}, {} to {}</text>\n",
      kWidth, 30 + kHeight * static_cast<double>(panels.size()), kLeft, to_string(options.verb),
      to_string(options.queues.service), options.ends.devices[0], options.ends.devices[1]);
  for (std::size_t i = 0; i != panels.size(); ++i) {
    text += fmt::format("<g transform=\"translate(0 {})\">\n{}</g>\n",
                        30 + kHeight * static_cast<double>(i), draw(panels[i]));
  }
  return text + "</svg>\n";
}

}  // namespace softhca::perf

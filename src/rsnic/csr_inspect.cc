#include "rsnic/csr_inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace softhca::rsnic {
namespace {

constexpr std::string_view kPart = "csr";

/// "4.1.1 QUERY_HCA_CAP"
std::string table_name(const CsrRow& row) {
  return fmt::format("{} {}", row.section, to_string(row.command));
}

/// Removes the rows of the next table from `rows` and returns them.
std::span<const CsrRow> next_table(std::span<const CsrRow>& rows) {
  const auto same = [&](const CsrRow& row) { return row.section == rows[0].section; };
  const auto size = static_cast<std::size_t>(std::ranges::find_if_not(rows, same) - rows.begin());
  const auto table = rows.first(size);
  rows = rows.subspan(size);
  return table;
}

std::string_view next_line(std::string_view& text) {
  const auto end = std::min(text.find('\n'), text.size());
  const auto line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

std::size_t indentation(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

/// The lines below "csr:" that belong to that part.
std::vector<std::string_view> lines_of_part(std::string_view text) {
  std::vector<std::string_view> lines;
  std::size_t depth = 0;
  bool inside = false;
  while (!text.empty()) {
    const auto line = next_line(text);
    const auto at = indentation(line);
    if (inside && at <= depth) break;
    if (inside) {
      lines.push_back(line.substr(at));
    } else if (line.substr(at) == fmt::format("{}:", kPart)) {
      inside = true;
      depth = at;
    }
  }
  return lines;
}

std::string show_printed(const CsrRow& row) {
  return row.printed ? fmt::format("{:X}h", *row.printed) : std::string("-");
}

auto find_table(const std::vector<std::string_view>& lines, std::span<const CsrRow> table) {
  const auto start = table_name(table[0]) + ":";
  return std::ranges::find_if(lines, [&](auto line) { return line.starts_with(start); });
}

/// The value of the line "place: value" among the lines of a table.
std::string_view live_value(std::span<const std::string_view> lines, const CsrRow& row) {
  const auto start = row.place() + ": ";
  for (const auto line : lines) {
    if (line.starts_with(start)) return line.substr(start.size());
  }
  return "-";
}

}  // namespace

void inspect_csr(const CsrFile& file, util::View<spec::connectx::hca_cap> general,
                 util::Inspection& out) {
  out.group(kPart, [&] {
    for (auto rows = csr_table(); !rows.empty();) {
      const auto table = next_table(rows);
      out.part(table_name(table[0]), [&](util::InspectNode& node) {
        for (const auto& row : table) {
          if (const auto value = file.value(row, general)) node.add(row.place(), *value);
        }
      });
    }
  });
}

std::string csr_report(std::string_view inspected) {
  const auto lines = lines_of_part(inspected);
  if (lines.empty()) return {};
  std::string report;
  for (auto rows = csr_table(); !rows.empty();) {
    const auto table = next_table(rows);
    report += fmt::format("{} {}\n", table[0].section, table[0].title);
    const auto begin = find_table(lines, table);
    const auto end = rows.empty() ? lines.end() : find_table(lines, rows);
    for (const auto& row : table) {
      report += fmt::format("  {:<38} printed {:<10} live {}\n", row.place(), show_printed(row),
                            live_value({begin, std::max(begin, end)}, row));
    }
  }
  return report;
}

}  // namespace softhca::rsnic

#include "util/inspection.h"

#include <fmt/format.h>

namespace softhca::util {

Inspection::Inspection(std::string_view name, const Options& options)
    : options_(options), out_(options.json) {
  out_.begin(name, false);
}

bool Inspection::due() {
  if (paused_) return false;
  if (at_ != done_) {
    ++at_;
    return false;
  }
  return !pause();
}

void Inspection::did() {
  ++at_;
  ++done_;
}

bool Inspection::add(const InspectNode& node) {
  const auto mark = out_.mark();
  node.write_children(out_);
  work_->charge(kShowWork + kByteWork * static_cast<std::int64_t>(out_.size() - mark.size));
  if (out_.size() <= options_.bytes) return true;
  out_.go_back(mark);
  cut(
      fmt::format("the rest does not fit into {} bytes; ask for one function, or for less by "
                  "--count",
                  options_.bytes));
  return false;
}

void Inspection::cut(std::string_view reason) {
  cut_ = paused_ = true;
  reason_ = reason;
}

std::string Inspection::finish() {
  while (out_.depth() > 1) out_.end();
  if (cut_) out_.text("answer_cut", reason_);
  out_.end();
  return out_.take();
}

bool Inspection::begin(const InspectList& list) {
  if (scan_.begun) return true;
  if (!list.there) {
    did();
    return false;
  }
  out_.begin(list.name, true);
  scan_.begun = true;
  // If the number of objects is unknown, all positions are searched and counted.
  scan_.place = list.count ? std::max(list.begin, first(list)) : list.begin;
  return true;
}

bool Inspection::scan_ends(const InspectList& list) const {
  if (!list.there || scan_.place >= list.end) return true;
  return list.count && (scan_.next || scan_.shown == *list.count);
}

bool Inspection::counts(const InspectList& list, std::uint64_t place) {
  ++scan_.found;
  if (place < first(list)) return false;
  if (scan_.shown < options_.count) return true;
  if (!scan_.next) scan_.next = place << list.shift;
  return false;
}

void Inspection::unreadable(std::uint64_t place, std::string_view why) {
  if (scan_.unreadable.empty()) scan_.unreadable = fmt::format("from {:#x} on: {}", place, why);
}

void Inspection::end(const InspectList& list) {
  out_.end();
  const auto count = list.count.value_or(scan_.found);
  out_.number(fmt::format("{}_count", list.name), count);
  if (scan_.shown < count) {
    out_.text(fmt::format("{}_shown", list.name),
              fmt::format("{} of {}{}", scan_.shown, count,
                          scan_.next ? fmt::format(", --from {:#x} for more", *scan_.next) : ""));
  }
  if (!scan_.unreadable.empty()) {
    out_.text(fmt::format("{}_unreadable", list.name), scan_.unreadable);
  }
  scan_ = {};
  did();
}

void Inspection::end_tally(std::string_view name) {
  InspectNode node("");
  auto& part = node.child(name);
  for (const auto& [found, number] : tally_) part.add(found, number);
  if (!add(node)) return;
  tally_.clear();
  scan_ = {};
  did();
}

}  // namespace softhca::util

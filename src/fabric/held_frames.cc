#include "fabric/held_frames.h"

#include <iterator>
#include <new>
#include <utility>

#include "os/memory_faults.h"

namespace softhca::fabric {

bool HeldFrames::hold(const wire::Frame& frame, const Terms& terms) {
  if (frames_.size() >= kFramesMax || bytes_ + frame.size() > kBytesMax) return false;
  try {
    wire::Frame own(frame);
    own.own_segments();
    // The bytes may be wrong, or acknowledge data that did not arrive.
    if (os::MemoryFaults::pending()) return false;
    frames_.emplace(terms.passes == 0 ? terms.due : terms.latest,
                    Held{.frame = std::move(own), .terms = terms, .number = count_});
  } catch (const std::bad_alloc&) {
    return false;
  }
  ++count_;
  bytes_ += frame.size();
  reordered_ += terms.passes != 0;
  return true;
}

std::optional<wire::Frame> HeldFrames::take_due(util::Time now) {
  const auto first = frames_.begin();
  if (first == frames_.end() || first->first > now) return std::nullopt;
  reordered_ -= first->second.terms.passes != 0;
  auto frame = std::move(first->second.frame);
  const auto number = first->second.number;
  frames_.erase(first);
  bytes_ -= frame.size();
  note_pass(number);
  return frame;
}

/// A frame of this number has passed those that came before it and are still here.
void HeldFrames::note_pass(std::uint64_t number) {
  auto left = reordered_;
  for (auto at = frames_.begin(); left != 0 && at != frames_.end();) {
    const auto next = std::next(at);
    auto& terms = at->second.terms;
    left -= terms.passes != 0;
    if (terms.passes != 0 && at->second.number < number && --terms.passes == 0) {
      --reordered_;
      move(at, terms.due);
    }
    at = next;
  }
}

/// Goes behind those that are due then already.
void HeldFrames::move(Frames::iterator at, util::Time due) {
  if (at->first == due) return;
  auto node = frames_.extract(at);
  reordered_ -= node.mapped().terms.passes != 0;
  node.mapped().terms.passes = 0;
  node.key() = due;
  frames_.insert(std::move(node));
}

}  // namespace softhca::fabric

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
    frames_.emplace(terms.due,
                    Held{.frame = std::move(own), .passes = terms.passes, .owner = terms.owner});
  } catch (const std::bad_alloc&) {
    return false;
  }
  bytes_ += frame.size();
  reordered_ += terms.passes != 0;
  return true;
}

std::optional<wire::Frame> HeldFrames::take_due(util::Time now) {
  const auto first = frames_.begin();
  if (first == frames_.end() || first->first > now) return std::nullopt;
  reordered_ -= first->second.passes != 0;
  auto frame = std::move(first->second.frame);
  frames_.erase(first);
  bytes_ -= frame.size();
  return frame;
}

void HeldFrames::note_pass() {
  for (auto at = frames_.begin(); reordered_ != 0 && at != frames_.end();) {
    const auto next = std::next(at);
    auto& passes = at->second.passes;
    if (passes != 0 && --passes == 0) {
      --reordered_;
      make_due(at);
    }
    at = next;
  }
}

/// Goes behind those that are due already.
void HeldFrames::make_due(Frames::iterator at) {
  if (at->first == util::Time::min()) return;
  auto node = frames_.extract(at);
  reordered_ -= node.mapped().passes != 0;
  node.mapped().passes = 0;
  node.key() = util::Time::min();
  frames_.insert(std::move(node));
}

}  // namespace softhca::fabric

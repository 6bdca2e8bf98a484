// An address that a call waits for. The call is served without it, the network is asked without the
// engine's lock, and the call is served once more.
#pragma once

#include <optional>

#include "driver/address.h"
#include "util/clock.h"

namespace softhca::door {

class Resolution {
 public:
  /// `place` points to `resolution` while its call is served.
  class InUse {
   public:
    InUse(Resolution*& place, Resolution& resolution) : place_(place) { place_ = &resolution; }
    ~InUse() { place_ = nullptr; }
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;

   private:
    Resolution*& place_;
  };

  /// Three requests, within a second.
  static constexpr unsigned kTries = 3;
  static constexpr util::Duration kPatience = std::chrono::milliseconds(300);

  /// A call needs an address that no device knows. False: the network was asked in vain.
  bool want(const driver::Gid& to) {
    if (gave_up_) return false;
    to_ = to;
    return true;
  }
  const std::optional<driver::Gid>& wanted() const { return to_; }

  enum class Step : std::uint8_t { kAsk, kWait, kGiveUp };
  /// What there is to do while the address is not known.
  Step step(util::Time now) {
    if (tries_ != 0 && now < next_) return Step::kWait;
    gave_up_ = tries_ == kTries;
    if (gave_up_) return Step::kGiveUp;
    ++tries_;
    next_ = now + kPatience;
    return Step::kAsk;
  }
  /// The call is served again.
  void begin_again() { to_.reset(); }

 private:
  std::optional<driver::Gid> to_;
  util::Time next_{};
  unsigned tries_ = 0;
  bool gave_up_ = false;
};

}  // namespace softhca::door

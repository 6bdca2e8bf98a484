// An address that a call waits for. The call is first served without the address. Then the network
// is asked without the engine's lock, and the call is served again.
#pragma once

#include <optional>

#include "driver/address.h"
#include "util/clock.h"

namespace softhca::door {

class Resolution {
 public:
  /// While one exists, `place` points to `resolution`, whose call is being served.
  class InUse {
   public:
    InUse(Resolution*& place, Resolution& resolution) : place_(place) { place_ = &resolution; }
    ~InUse() { place_ = nullptr; }
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;

   private:
    Resolution*& place_;
  };

  /// Three requests within a second.
  static constexpr unsigned kTries = 3;
  static constexpr util::Duration kPatience = std::chrono::milliseconds(300);

  /// Records that the call needs an unknown address. False: the network did not answer.
  bool want(const driver::Gid& to) {
    if (gave_up_) return false;
    to_ = to;
    return true;
  }
  const std::optional<driver::Gid>& wanted() const { return to_; }

  enum class Step : std::uint8_t { kAsk, kWait, kGiveUp };
  /// The next step while the address is unknown.
  Step step(util::Time now) {
    if (tries_ != 0 && now < next_) return Step::kWait;
    gave_up_ = tries_ == kTries;
    if (gave_up_) return Step::kGiveUp;
    ++tries_;
    next_ = now + kPatience;
    return Step::kAsk;
  }
  /// To be called before the call is served again.
  void begin_again() { to_.reset(); }

 private:
  std::optional<driver::Gid> to_;
  util::Time next_{};
  unsigned tries_ = 0;
  bool gave_up_ = false;
};

}  // namespace softhca::door

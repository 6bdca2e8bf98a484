// What the device can do (PRM 12.3.3): for each group of capabilities a maximum, which never
// changes, and what the driver has chosen with SET_HCA_CAP.
//
// What is not implemented is not advertised: a driver relies on every bit that is set here.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "connectx/base/limits.h"
#include "connectx/base/model.h"
#include "connectx/command/command.h"
#include "spec/connectx/caps.h"

namespace softhca::connectx {

class Capabilities {
 public:
  using Type = spec::connectx::hca_cap_type;
  static constexpr std::size_t kImageSize = 4096;

  /// @pre no limit is above that of a ConnectX-4 (limit_list.inc), and the capabilities of
  /// `model` are there and no limits
  explicit Capabilities(const Limits& limits, const Model& model = {});

  /// Empty if the device does not have this group.
  std::span<const std::byte> maximum(Type type) const;
  std::span<const std::byte> current(Type type) const;
  /// The general group as it is now.
  util::View<spec::connectx::hca_cap> general() const {
    return util::View<spec::connectx::hca_cap>(groups_[0].current);
  }
  /// What commands hold drivers to: the limits of the device, as far as SET_HCA_CAP has not lowered
  /// them.
  const Limits& limits() const { return current_; }

  /// SET_HCA_CAP: takes the writable fields of `image`, all or none. Others are ignored: drivers
  /// send back the image they got, or zeros.
  CommandResult set(Type type, std::span<const std::byte> image);
  /// Back to what the device has at power-on.
  void reset();

 private:
  struct Group {
    Type type;
    bool present = true;
    std::array<std::byte, kImageSize> maximum{};
    std::array<std::byte, kImageSize> current{};
  };

  const Group* find(Type type) const;

  Limits maximum_;
  Limits current_;
  std::array<Group, 7> groups_;
};

}  // namespace softhca::connectx

// The device's capabilities (PRM 12.3.3). Each group has maximum values, which never change, and
// current values, which the driver sets with SET_HCA_CAP.
//
// Only implemented features are advertised, because a driver relies on every bit that is set here.
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

  /// @pre no limit is above that of limit_list.inc, and the capabilities of `model` exist and are
  /// not limits
  explicit Capabilities(const Limits& limits, const Model& model = {});

  /// Empty if the device does not have this group.
  std::span<const std::byte> maximum(Type type) const;
  std::span<const std::byte> current(Type type) const;
  /// Current values of the general group.
  util::View<spec::connectx::hca_cap> general() const {
    return util::View<spec::connectx::hca_cap>(groups_[0].current);
  }
  /// The limits that commands enforce: those of the device, or lower ones that SET_HCA_CAP has set.
  const Limits& limits() const { return current_; }

  /// SET_HCA_CAP: sets all writable fields from `image`. If one is refused, sets none. Other fields
  /// are ignored, because drivers send the image that they read, or zeros.
  CommandResult set(Type type, std::span<const std::byte> image);
  /// Restores the power-on values.
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

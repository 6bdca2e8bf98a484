// The HCR: the register set through which software issues commands (JingZhao 3.1.1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "jingzhao/command.h"

namespace softhca::jingzhao {

class Hcr {
 public:
  using Layout = spec::jingzhao::hcr;
  static constexpr std::uint32_t kSize = Layout::kSize;

  void reset() { registers_.reset(); }

  std::uint32_t read(std::uint32_t offset) const;
  /// Writes one dword; ignored while `go` is set. True if it started a command.
  bool write(std::uint32_t offset, std::uint32_t value);

  bool busy() const { return view().get(Layout::go) != 0; }
  /// The pending command, without mailboxes. @pre busy()
  Command command() const;
  std::uint64_t out_param() const;
  std::uint16_t token() const { return static_cast<std::uint16_t>(view().get(Layout::token)); }
  /// True if software requested an event on completion.
  bool wants_event() const { return view().get(Layout::e) != 0; }
  /// Sets the status, then clears `go`.
  void complete(Status status);

 private:
  struct Registers {
    std::byte bytes[kSize] = {};
    void reset() { *this = {}; }
  };
  util::View<Layout> view() const { return util::View<Layout>(registers_.bytes); }
  util::MutableView<Layout> view() { return util::MutableView<Layout>(registers_.bytes); }

  Registers registers_;
};

}  // namespace softhca::jingzhao

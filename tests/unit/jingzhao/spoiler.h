// A host that changes a command's input mailbox after the driver has written it and before the
// device reads it.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "jingzhao/fields.h"
#include "jingzhao/world.h"
#include "spec/jingzhao/command.h"
#include "spec/jingzhao/registers.h"

namespace softhca::jingzhao::test {

class Spoiler final : public driver::InProcessHost {
 public:
  using Spoil = std::function<void(spec::jingzhao::command_opcode, std::span<std::byte> mailbox)>;
  using InProcessHost::InProcessHost;

  /// For World::Options: gives both devices such a host.
  static MakeHost make() {
    return [](auto& function, auto options) {
      return std::make_unique<Spoiler>(function, std::move(options));
    };
  }
  static Spoiler& of(Node& node) { return static_cast<Spoiler&>(*node.host); }

  util::Result<driver::DmaRegion> allocate(std::size_t size) override {
    auto made = InProcessHost::allocate(size);
    if (made) regions_.push_back(*made);
    return made;
  }
  void write_bar(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) override {
    using spec::jingzhao::hcr;
    constexpr auto kHcr = kDocumentRules.hcr_offset;
    if (bar == 0 && offset >= kHcr && offset < kHcr + hcr::kSize) {
      const auto at = offset - kHcr;
      std::ranges::copy(in, hcr_.bytes().begin() + static_cast<std::ptrdiff_t>(at));
      if (at == hcr::go.kOffset && spoil) {
        spoil(spec::jingzhao::command_opcode(hcr_.get(hcr::op)), mailbox());
      }
    }
    std::array<std::byte, 8> changed;
    if (bar == 2 && in.size() == changed.size() && doorbell) {
      std::ranges::copy(in, changed.begin());
      doorbell_at_ = offset;
      doorbell(changed);
      in = changed;
    }
    InProcessHost::write_bar(bar, offset, in);
  }

  Spoil spoil;
  /// Changes each 64-bit doorbell.
  std::function<void(std::span<std::byte, 8>)> doorbell;
  /// Offset of the last such doorbell in BAR 2.
  std::uint64_t doorbell_at() const { return doorbell_at_; }
  /// All memory that the driver has allocated.
  std::span<const driver::DmaRegion> regions() const { return regions_; }

 private:
  std::span<std::byte> mailbox() {
    using spec::jingzhao::hcr;
    const auto at = std::uint64_t{hcr_.get(hcr::in_param_h)} << 32 | hcr_.get(hcr::in_param_l);
    for (const auto& region : regions_) {
      if (at >= region.iova && at < region.iova + region.bytes.size()) {
        return region.bytes.subspan(at - region.iova);
      }
    }
    return {};
  }

  util::Struct<spec::jingzhao::hcr> hcr_;
  std::uint64_t doorbell_at_ = 0;
  std::vector<driver::DmaRegion> regions_;
};

}  // namespace softhca::jingzhao::test

// A hostile driver's view of a sound one: the memory that the sound one took.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "driver/host.h"

namespace softhca::driver {

/// A host that records the driver's allocations, so that a test can overwrite them.
class SpyHost final : public Host {
 public:
  explicit SpyHost(std::unique_ptr<Host> host) : host_(std::move(host)) {}
  void read_config(std::uint32_t offset, std::span<std::byte> out) override {
    host_->read_config(offset, out);
  }
  void write_config(std::uint32_t offset, std::span<const std::byte> in) override {
    host_->write_config(offset, in);
  }
  void read_bar(unsigned bar, std::uint64_t offset, std::span<std::byte> out) override {
    host_->read_bar(bar, offset, out);
  }
  void write_bar(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) override {
    host_->write_bar(bar, offset, in);
  }
  util::Result<DmaRegion> allocate(std::size_t size) override {
    auto region = host_->allocate(size);
    if (region) taken_.push_back(*region);
    return region;
  }
  void free(const DmaRegion& region) override {
    std::erase_if(taken_, [&](const DmaRegion& r) { return r.iova == region.iova; });
    host_->free(region);
  }
  util::Result<DmaRegion> map(std::span<std::byte> bytes) override { return host_->map(bytes); }
  void unmap(const DmaRegion& region) override { host_->unmap(region); }
  util::Result<void> enable_interrupts(unsigned count) override {
    return host_->enable_interrupts(count);
  }
  void disable_interrupts() override { host_->disable_interrupts(); }
  std::uint64_t interrupts(unsigned vector) const override { return host_->interrupts(vector); }
  void progress() override { host_->progress(); }
  util::Time now() const override { return host_->now(); }

  const std::vector<DmaRegion>& taken() const { return taken_; }

 private:
  std::unique_ptr<Host> host_;
  std::vector<DmaRegion> taken_;
};

}  // namespace softhca::driver

#include "jingzhao/queue_memory.h"

#include <algorithm>

namespace softhca::jingzhao {

namespace {
constexpr std::uint8_t kBothWays = rdma::kLocalRead | rdma::kLocalWrite;
}  // namespace

std::optional<hca::QueueMemory> QueueMemory::behind_key() {
  // A check of 0 bytes loads the key into the table, and fails only if the key does not exist.
  // After it the start of the region is known.
  (void)keys_->check(lkey_, {.pd = {}, .qpn = {}}, 0, 0, 0);
  const auto* key = keys_->find(lkey_);
  if (key == nullptr || key->is_free()) return std::nullopt;
  const auto& attributes = key->attributes();
  return hca::QueueMemory::over_key({.keys = keys_,
                                     .key = lkey_,
                                     .user = {.pd = pd_.value_or(attributes.pd), .qpn = {}},
                                     .address = attributes.start},
                                    size_);
}

void QueueMemory::look() {
  window_ = 0;
  if (bus_) {
    host_ = keys_->dma().translate(*bus_, size_, pcie::DmaAccess::kReadWrite);
    if (host_ != nullptr) window_ = size_;
  } else if (auto memory = behind_key()) {
    auto* key = keys_->find(lkey_);
    const auto start = key->attributes().start;
    const auto pd = pd_.value_or(key->attributes().pd);
    if (auto found = keys_->check(lkey_, {.pd = pd, .qpn = {}}, start, 1, kBothWays)) {
      // Maps the whole queue, or its contiguous first part.
      (void)keys_->one_piece(*found.key, start, 1, pcie::DmaAccess::kReadWrite);
      const auto window = keys_->window(*found.key);
      if (window.start == start) {
        host_ = window.host;
        window_ = std::min(window.size, size_);
      }
    }
  }
  // A region may start at any address, but rings access the owner's dword atomically, which needs
  // alignment.
  if (reinterpret_cast<std::uintptr_t>(host_) % alignof(std::uint32_t) != 0) window_ = 0;
  keys_generation_ = keys_->generation();
  dma_generation_ = keys_->dma().generation();
}

bool QueueMemory::read_slow(std::uint64_t offset, std::span<std::byte> out) {
  if (bus_) return keys_->dma().read(*bus_ + offset, out);
  auto memory = behind_key();
  return memory && memory->read(offset, out);
}

bool QueueMemory::write(std::uint64_t offset, std::span<const std::byte> in) {
  if (auto* to = at(offset, in.size())) {
    std::memcpy(to, in.data(), in.size());
    return true;
  }
  if (bus_) return keys_->dma().write(*bus_ + offset, in);
  auto memory = behind_key();
  return memory && memory->write(offset, in);
}

}  // namespace softhca::jingzhao

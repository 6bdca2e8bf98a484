#include "connectx/base/user_contexts.h"

#include <cassert>
#include <utility>

namespace softhca::connectx {

namespace {

std::size_t space_of(Owned kind) { return static_cast<std::size_t>(number_space(kind)); }

}  // namespace

UserContexts::UserContexts(const Limits& limits)
    : uids_(1, Limits::count(limits.log_max_uctx)), contexts_(uids_.end()) {}

std::optional<Uid> UserContexts::create(std::uint32_t capabilities) {
  const auto id = uids_.allocate();
  if (!id) return std::nullopt;
  contexts_[*id] = {.used = true, .capabilities = capabilities, .objects = 0};
  ++count_;
  return Uid(static_cast<std::uint16_t>(*id));
}

void UserContexts::destroy(Uid uid) {
  assert(contains(uid) && objects(uid) == 0);
  contexts_[uid.value()] = {};
  uids_.free(uid.value());
  --count_;
}

Uid UserContexts::owner(Owned kind, std::uint32_t number) const {
  const auto& chunks = owners_[space_of(kind)];
  const auto chunk = number / kChunk;
  if (chunk >= chunks.size() || chunks[chunk] == nullptr) return kKernel;
  return (*chunks[chunk])[number % kChunk];
}

void UserContexts::set_owner(Owned kind, std::uint32_t number, Uid uid) {
  assert(owner(kind, number) == kKernel);
  auto& chunks = owners_[space_of(kind)];
  const auto chunk = number / kChunk;
  if (chunk >= chunks.size()) chunks.resize(chunk + 1);
  if (chunks[chunk] == nullptr) chunks[chunk] = std::make_unique<Chunk>();
  (*chunks[chunk])[number % kChunk] = uid;
  if (contains(uid)) ++contexts_[uid.value()].objects;
}

std::vector<std::uint32_t> UserContexts::owned(Owned kind, Uid uid) const {
  std::vector<std::uint32_t> numbers;
  const auto& chunks = owners_[space_of(kind)];
  for (std::size_t chunk = 0; chunk != chunks.size(); ++chunk) {
    if (chunks[chunk] == nullptr) continue;
    for (std::size_t i = 0; i != kChunk; ++i) {
      if ((*chunks[chunk])[i] == uid) {
        numbers.push_back(static_cast<std::uint32_t>(chunk * kChunk + i));
      }
    }
  }
  return numbers;
}

void UserContexts::forget(Owned kind, std::uint32_t number) {
  const auto uid = owner(kind, number);
  if (uid == kKernel) return;
  auto& chunk = *owners_[space_of(kind)][number / kChunk];
  chunk[number % kChunk] = kKernel;
  if (contains(uid)) --contexts_[uid.value()].objects;
}

}  // namespace softhca::connectx

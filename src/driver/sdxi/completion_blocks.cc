#include "driver/sdxi/completion_blocks.h"

#include <algorithm>

namespace softhca::driver::sdxi {

using spec::cst_blk;

util::Result<void> CompletionBlocks::allocate(Host& host) {
  auto memory = DmaBuffer::allocate(host, kCount * cst_blk::kSize);
  if (!memory) return tl::unexpected(memory.error());
  memory_ = std::move(*memory);
  uses_.resize(kCount);
  free_.reserve(kCount);
  for (std::uint32_t i = kCount; i > 0; --i) free_.push_back(i - 1);
  return {};
}

std::span<std::byte> CompletionBlocks::bytes(std::uint32_t block) const {
  return memory_.bytes().subspan(block * std::size_t{cst_blk::kSize}, cst_blk::kSize);
}

util::Result<Completion> CompletionBlocks::take() {
  if (free_.empty()) return util::fail("too many SDXI completions not waited for");
  const auto block = free_.back();
  free_.pop_back();
  uses_[block].taken = true;
  const util::MutableView<cst_blk> fresh(bytes(block));
  std::fill(fresh.bytes().begin(), fresh.bytes().end(), std::byte{0});
  fresh.set(cst_blk::signal, 1);
  return Completion(block, uses_[block].number);
}

void CompletionBlocks::free(std::uint32_t block) {
  uses_[block].taken = false;
  ++uses_[block].number;
  free_.push_back(block);
}

void CompletionBlocks::give_back(const Completion& completion) {
  if (!given_up(completion)) free(completion.block_);
}

void CompletionBlocks::give_up() {
  for (std::uint32_t block = 0; block < kCount; ++block) {
    if (uses_[block].taken && !has_signaled(block)) free(block);
  }
}

bool CompletionBlocks::given_up(const Completion& completion) const {
  return uses_[completion.block_].number != completion.use_;
}

bool CompletionBlocks::has_signaled(std::uint32_t block) const {
  const auto* signal = reinterpret_cast<const std::uint64_t*>(bytes(block).data());
  return __atomic_load_n(signal, __ATOMIC_ACQUIRE) == 0;
}

bool CompletionBlocks::ended(const Completion& completion) const {
  return given_up(completion) || has_signaled(completion.block_);
}

bool CompletionBlocks::failed(const Completion& completion) const {
  const util::View<cst_blk> block(std::span<const std::byte>(bytes(completion.block_)));
  return block.get(cst_blk::er) != 0;
}

pcie::Iova CompletionBlocks::iova(const Completion& completion) const {
  return memory_.iova(completion.block_ * std::size_t{cst_blk::kSize});
}

}  // namespace softhca::driver::sdxi

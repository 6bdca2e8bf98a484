// Inputs and outputs of commands: a declared structure with its storage, and the list that may
// follow it.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "driver/dma_memory.h"
#include "spec/connectx/opcodes.h"
#include "util/field.h"

namespace softhca::driver::connectx {

namespace spec = softhca::spec::connectx;

namespace detail {
struct MessageStorage {
  std::vector<std::byte> storage;
};
}  // namespace detail

/// Initially zero. `tail`: bytes behind the structure. Movable, not copyable.
template <class Layout>
class Message : private detail::MessageStorage, public util::MutableView<Layout> {
 public:
  explicit Message(std::size_t tail = 0)
      : MessageStorage{std::vector<std::byte>(Layout::kSize + tail)},
        util::MutableView<Layout>(std::span(storage)) {}
  Message(Message&&) noexcept = default;
  Message& operator=(Message&&) noexcept = delete;

  /// Structure and tail.
  std::span<std::byte> all() { return storage; }
  std::span<const std::byte> all() const { return storage; }
};

/// The input of a command, with its opcode filled in.
template <class Layout>
class Request : public Message<Layout> {
 public:
  explicit Request(spec::command_opcode opcode, std::size_t tail = 0) : Message<Layout>(tail) {
    this->set(Layout::opcode, static_cast<std::uint16_t>(opcode));
  }
};

/// Bytes of the page list of a queue of `size` bytes.
inline std::size_t page_list_size(std::size_t size) {
  return (size + Host::kPageSize - 1) / Host::kPageSize * sizeof(std::uint64_t);
}

/// Fills `list` with the addresses of the pages of `buffer`, from its first byte on.
inline void store_page_list(std::span<std::byte> list, const DmaBuffer& buffer) {
  for (std::size_t i = 0; i < list.size() / sizeof(std::uint64_t); ++i) {
    util::store_be64(list.data() + i * sizeof(std::uint64_t), buffer.iova(i * Host::kPageSize));
  }
}

}  // namespace softhca::driver::connectx

// A command as a driver's software writes it, and the device's reply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "spec/connectx/command.h"
#include "spec/connectx/opcodes.h"
#include "util/endian.h"
#include "util/field.h"

namespace softhca::connectx {

/// A command's input, with its opcode and op_mod filled in.
template <class Layout>
class Input {
 public:
  explicit Input(spec::connectx::command_opcode opcode, std::uint16_t op_mod = 0,
                 std::size_t tail = 0)
      : bytes_(Layout::kSize + tail) {
    using Header = spec::connectx::command_input_header;
    const util::MutableView<Header> header(bytes_);
    header.set(Header::opcode, static_cast<std::uint16_t>(opcode));
    header.set(Header::op_mod, op_mod);
  }
  util::MutableView<Layout> operator*() { return util::MutableView<Layout>(bytes_); }
  /// Makes `in->set(...)` work.
  struct Arrow {
    util::MutableView<Layout> view;
    util::MutableView<Layout>* operator->() { return &view; }
  };
  Arrow operator->() { return {**this}; }
  std::span<std::byte> tail() { return std::span(bytes_).subspan(Layout::kSize); }
  void set_address(std::size_t index, std::uint64_t address) {
    util::store_be64(tail().data() + 8 * index, address);
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// The reply to a command.
struct Reply {
  bool completed = false;  ///< the device returned the entry
  spec::connectx::delivery_status delivery{};
  std::vector<std::byte> out;

  spec::connectx::command_status status() const {
    using Header = spec::connectx::command_output_header;
    return static_cast<spec::connectx::command_status>(util::View<Header>(out).get(Header::status));
  }
  std::uint32_t syndrome() const {
    using Header = spec::connectx::command_output_header;
    return util::View<Header>(out).get(Header::syndrome);
  }
  /// The meaning of the syndrome.
  std::string reason() const;
  bool ok() const {
    return completed && delivery == spec::connectx::delivery_status::OK &&
           status() == spec::connectx::command_status::OK;
  }
  explicit operator bool() const { return ok(); }
  template <class Layout>
  util::View<Layout> as() const {
    return util::View<Layout>(out);
  }
};

}  // namespace softhca::connectx

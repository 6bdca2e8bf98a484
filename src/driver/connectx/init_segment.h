// The initialization segment at the start of BAR0 (PRM 4.3), read and written word by word.
#pragma once

#include <memory>

#include "driver/host.h"
#include "spec/connectx/init_segment.h"

namespace softhca::driver::connectx {

namespace spec = softhca::spec::connectx;

class InitSegment {
 public:
  static constexpr unsigned kBar = 0;

  explicit InitSegment(Host& host)
      : host_(host), words_(std::make_unique<util::Struct<spec::init_segment>>()) {}

  /// Reads the dword of a field and returns the field.
  template <class Field>
  auto read(Field field) {
    fetch(Field::kOffset);
    return words_->get(field);
  }
  /// Writes the dword of a field whose other bits are 0.
  template <class Field>
  void write(Field field, typename Field::Word value) {
    static_assert(Field::kHi < 32);
    util::store_be32(word(Field::kOffset).data(), 0);
    words_->set(field, value);
    host_.write_bar(kBar, Field::kOffset, word(Field::kOffset));
  }
  /// PRM 8.2: "If using 32-bit writes, write the most significant word first", with nic_interface,
  /// log_cmdq_size and log_cmdq_stride 0.
  void write_command_queue_address(pcie::Iova address);

 private:
  std::span<std::byte> word(std::size_t offset) const {
    return words_->bytes().subspan(offset, sizeof(std::uint32_t));
  }
  void fetch(std::size_t offset) { host_.read_bar(kBar, offset, word(offset)); }

  Host& host_;
  /// The last value of each word. On the heap, because it has 16 KiB.
  std::unique_ptr<util::Struct<spec::init_segment>> words_;
};

}  // namespace softhca::driver::connectx

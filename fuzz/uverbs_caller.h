// A program with an open device file. A script selects its calls, and the objects made by them are
// recorded.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "oracle.h"
#include "script.h"
#include "uverbs/devx_program.h"

namespace softhca::fuzz {

using uverbs::Call;
using uverbs::DevxProgram;
using uverbs::Errno;
using uverbs::Program;

constexpr std::uint32_t kExtended = IB_USER_VERBS_CMD_FLAG_EXTENDED;

class UverbsCaller {
 public:
  explicit UverbsCaller(Script script) : script_(script) {
    served(program_.reopen(true));
    page_ = program_.uar();
  }
  ~UverbsCaller() {
    for (const int fd : channels_) ::close(fd);
  }
  UverbsCaller(const UverbsCaller&) = delete;
  UverbsCaller& operator=(const UverbsCaller&) = delete;

 protected:
  /// Usually an address in the program's memory.
  std::uint64_t address() {
    const auto at = script_.word();
    switch (at) {
      case 0xffff:
        return 0;
      case 0xfffe:
        return ~std::uint64_t{0} - 4095;
      case 0xfffd:
        return program_.memory() + Program::kMemory;
      default:
        return program_.memory() + at * 64 % Program::kMemory;
    }
  }
  std::byte* place() {
    return reinterpret_cast<std::byte*>(program_.memory() + script_.word() * 8 % Program::kMemory);
  }
  /// A handle of this kind of object, which may be destroyed, or any number: handles are small,
  /// from 1 on. 255 selects the newest.
  std::uint32_t handle(std::uint16_t object) {
    const auto which = script_.byte();
    const auto known = made_.find(object);
    if (which < 64 || known == made_.end()) return which % 32;
    const auto& all = known->second;
    return all[all.size() - 1 - (255u - which) % all.size()];
  }
  void note_made(std::uint16_t object, std::uint32_t number) { made_[object].push_back(number); }
  /// A descriptor of a channel or the like, or any number.
  std::uint64_t descriptor() {
    const auto which = script_.byte();
    if (which < 64 || channels_.empty()) return which;
    return static_cast<std::uint64_t>(channels_[which % channels_.size()]);
  }
  /// 1 to 32768, or anything.
  std::uint32_t power() {
    const auto log = script_.byte() % 20;
    return log < 16 ? 1u << log : script_.byte();
  }

  void served(Errno wrong) { check(wrong >= 0 && wrong < 4096); }
  template <class In>
  void write(std::uint32_t command, const In& in) {
    std::array<std::byte, 256> out{};
    const auto wrong = uverbs::write_command(program_.context(), command, in, out);
    served(wrong);
    if (wrong == 0) note_written(command, out);
  }
  /// Records what a write() command has made.
  void note_written(std::uint32_t command, std::span<const std::byte> out) {
    const auto number = [&](std::size_t at) {
      std::uint32_t value;
      std::memcpy(&value, out.data() + at, sizeof value);
      return value;
    };
    switch (command) {
      case IB_USER_VERBS_CMD_ALLOC_PD:
        return note_made(UVERBS_OBJECT_PD, number(0));
      case IB_USER_VERBS_CMD_ALLOC_MW:
        return note_made(UVERBS_OBJECT_MW, number(0));
      case IB_USER_VERBS_CMD_CREATE_AH:
        return note_made(UVERBS_OBJECT_AH, number(0));
      case IB_USER_VERBS_CMD_OPEN_QP:
        return note_made(UVERBS_OBJECT_QP, number(0));
      case IB_USER_VERBS_CMD_OPEN_XRCD:
        return note_made(UVERBS_OBJECT_XRCD, number(0));
      case IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL:
        return channels_.push_back(static_cast<int>(number(0)));
      case IB_USER_VERBS_EX_CMD_CREATE_FLOW | kExtended:
        return note_made(UVERBS_OBJECT_FLOW, number(4));
      case IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL | kExtended:
        return note_made(UVERBS_OBJECT_RWQ_IND_TBL, number(8));
      default:
        return;
    }
  }
  /// Switches later calls to another device file, or back to the first one.
  void change_file() {
    const bool is_first = other_ == nullptr;
    if (is_first) other_ = program_.open_file();
    program_.exchange(other_);
    std::swap(page_, other_page_);
    if (!is_first) return;
    served(Program::get_context(program_.context(), true));
    page_ = program_.uar();
  }
  /// The first attribute is the handle of the new object.
  void make(Call& call, std::uint16_t object) {
    const auto wrong = call.on(program_.context());
    served(wrong);
    if (wrong == 0) note_made(object, call.made(0));
  }
  void run() {
    program_.device().records().scan();
    program_.device().hca().host().progress();
    program_.device().poll_events();
    program_.context().flush_events();
  }

  Script script_;
  DevxProgram program_{Program::Reach::kMemory};
  std::unique_ptr<uverbs::Context> other_;  ///< a second device file
  static constexpr std::size_t kChannelsMax = 8;
  std::vector<int> channels_;  ///< descriptors that the program received
  std::map<std::uint16_t, std::vector<std::uint32_t>> made_;  ///< handles, by kind of object
  std::uint32_t page_ = 0, other_page_ = 0;
  std::uint32_t last_qpn_ = 0;
};

}  // namespace softhca::fuzz

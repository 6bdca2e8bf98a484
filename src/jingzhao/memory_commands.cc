// SW2HW_MPT, HW2SW_MPT, WRITE_MTT (JingZhao 3.2.3).
#include <vector>

#include "jingzhao/device.h"

namespace softhca::jingzhao {

using spec::jingzhao::mpt_entry;
using spec::jingzhao::mtt_entry_group;
using spec::jingzhao::write_mtt_in;

namespace {

/// "The lower-numbered entry is in the higher" position of each group of four.
std::uint64_t page_of(util::View<mtt_entry_group> group, std::size_t number) {
  switch (number % 4) {
    case 0:
      return group.get(mtt_entry_group::page_0);
    case 1:
      return group.get(mtt_entry_group::page_1);
    case 2:
      return group.get(mtt_entry_group::page_2);
    default:
      return group.get(mtt_entry_group::page_3);
  }
}

}  // namespace

CommandResult sw2hw_mpt(Device& device, const Command& command) {
  return device.objects().memory_keys->install(command.in_modifier, command.input<mpt_entry>());
}

CommandResult hw2sw_mpt(Device& device, const Command& command) {
  return device.objects().memory_keys->remove(command.in_modifier);
}

CommandResult write_mtt(Device& device, const Command& command) {
  std::vector<std::uint64_t> pages(command.in_modifier);
  for (std::size_t i = 0; i != pages.size(); ++i) {
    const auto at = write_mtt_in::kSize + i / 4 * mtt_entry_group::kSize;
    pages[i] = page_of(util::View<mtt_entry_group>(command.in.subspan(at)), i);
  }
  const auto start = command.input<write_mtt_in>().get(write_mtt_in::mtt_start_index);
  return device.objects().memory_keys->write_mtt(start, pages);
}

}  // namespace softhca::jingzhao

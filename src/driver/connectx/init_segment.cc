#include "driver/connectx/init_segment.h"

namespace softhca::driver::connectx {

void InitSegment::write_command_queue_address(pcie::Iova address) {
  constexpr auto kHigh = spec::init_segment::cmdq_phy_addr.kOffset;
  constexpr auto kLow = kHigh + sizeof(std::uint32_t);
  util::store_be32(word(kHigh).data(), 0);
  util::store_be32(word(kLow).data(), 0);
  words_->set(spec::init_segment::cmdq_phy_addr, address / Host::kPageSize);
  host_.write_bar(kBar, kHigh, word(kHigh));
  host_.write_bar(kBar, kLow, word(kLow));
}

}  // namespace softhca::driver::connectx

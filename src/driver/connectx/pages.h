// Pages that the device requests and the driver gives (PRM 5.1, 12.3: QUERY_PAGES, MANAGE_PAGES).
#pragma once

#include <cstdint>
#include <map>

#include "driver/connectx/command_queue.h"
#include "driver/dma_memory.h"
#include "spec/connectx/hca.h"

namespace softhca::driver::connectx {

class Pages {
 public:
  Pages(Host& host, CommandQueue& commands) : host_(host), commands_(commands) {}

  /// Queries how many pages the device needs at this stage, and gives them.
  util::Result<void> give_for(spec::query_pages_op_mod stage);
  /// Serves a page request event: a positive count is given, a negative one taken back.
  util::Result<void> handle_request(std::int32_t count);
  /// Takes back everything that was given (PRM 8.3).
  util::Result<void> reclaim_all();

  /// Pages that the device holds.
  std::size_t given() const { return given_.size(); }

 private:
  util::Result<void> give(std::size_t count);
  /// Reports to the device that no pages are available now.
  util::Result<void> refuse();
  /// Takes back up to `count` pages. Returns how many the device returned.
  util::Result<std::size_t> take(std::size_t count);

  Host& host_;
  CommandQueue& commands_;
  std::map<pcie::Iova, DmaBuffer> given_;
};

}  // namespace softhca::driver::connectx

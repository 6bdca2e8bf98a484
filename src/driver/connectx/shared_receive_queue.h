// A shared receive queue: an RMP (PRM 12.13), whose WQEs form a linked list. Queue pairs take
// entries in any order; a completed entry goes to the end of the list.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "driver/connectx/protection_domain.h"
#include "driver/dma_memory.h"
#include "driver/work.h"

namespace softhca::driver::connectx {

class SharedReceiveQueue {
 public:
  struct Options {
    unsigned requests = 64;
    unsigned pieces = 4;  ///< per request
  };

  static util::Result<std::unique_ptr<SharedReceiveQueue>> create(ProtectionDomain& pd,
                                                                  const Options& options);
  ~SharedReceiveQueue();
  SharedReceiveQueue(const SharedReceiveQueue&) = delete;
  SharedReceiveQueue& operator=(const SharedReceiveQueue&) = delete;

  std::uint32_t rmpn() const { return rmpn_; }
  /// Neither allocates nor makes a system call.
  PostStatus post(const ReceiveRequest& request);
  /// MODIFY_RMP: requests an SRQ_LIMIT event when fewer than `limit` requests are left; 0: none.
  util::Result<void> arm_limit(unsigned limit);
  /// DESTROY_RMP. The destructor does it too, but cannot report an error.
  util::Result<void> destroy();

  // For queue pairs ----------------------------------------------------------------------------

  /// Completes the request in entry `index`. Returns its id; nothing if it was not posted.
  std::optional<std::uint64_t> complete(std::uint16_t index);

 private:
  SharedReceiveQueue(ProtectionDomain& pd, const Options& options);
  util::Result<void> create_on_device();
  std::span<std::byte> entry(std::uint32_t index) const {
    return memory_.bytes().subspan(index * stride_, stride_);
  }
  std::size_t ring_size() const { return entries_.size() * stride_; }
  std::uint32_t link_of(std::uint32_t index) const;
  void link(std::uint32_t from, std::uint32_t to);

  struct Entry {
    std::uint64_t id = 0;
    bool posted = false;
  };

  ProtectionDomain& pd_;
  Hca& hca_;
  Options options_;
  std::size_t stride_;
  DmaBuffer memory_;  ///< the WQEs, then the doorbell record
  std::vector<Entry> entries_;
  std::uint32_t head_ = 0;  ///< entry that is posted next
  std::uint32_t tail_ = 0;  ///< last free entry: never posted, because the list needs an end
  std::uint16_t counter_ = 0;
  std::uint32_t rmpn_ = 0;
  bool exists_ = false;
};

}  // namespace softhca::driver::connectx

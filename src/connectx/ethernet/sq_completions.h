// The completions of an SQ: its CQEs, written when the fabric has read the frames of their WQEs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "connectx/base/numbers.h"
#include "connectx/ethernet/eth_send_wqe.h"
#include "connectx/event/completion_queue.h"
#include "connectx/queue/send_control.h"
#include "util/clock.h"

namespace softhca::connectx {

class NetworkPort;

/// The functions that write CQEs return false if the CQ has failed. The SQ must then fail, too.
class SqCompletions {
 public:
  SqCompletions(Sqn sqn, std::uint32_t user_index, CompletionQueue& cq, const NetworkPort& port)
      : sqn_(sqn), user_index_(user_index), cq_(cq), port_(port) {}

  /// Time of the current turn.
  void set_time(util::Time now) { now_ = now; }
  /// A WQE has ended. Writes its CQE when all frames up to `frame` are released. `fault`: unset if
  /// the WQE has succeeded.
  bool finish(std::uint64_t frame, const SendWqeControl& control,
              const std::optional<EthWqeFault>& fault);
  /// True if completions wait until the fabric has read their frames.
  bool awaits_release() const { return !waiting_.empty(); }
  /// Reports the completions whose frames the fabric has read.
  bool report_released();
  /// Drops the completions that wait. The queue has no earlier error then.
  void reset();

 private:
  /// The result of a WQE. Its CQE is written when all frames up to `frame` are released.
  struct Ending {
    std::uint64_t frame;
    SendWqeControl control;
    std::optional<EthWqeFault> fault;  ///< unset: success
  };

  bool report(const Ending& ending);
  bool write_success(const SendWqeControl& control);
  bool write_error(const SendWqeControl& control, const EthWqeFault& fault);

  Sqn sqn_;
  std::uint32_t user_index_;
  CompletionQueue& cq_;
  const NetworkPort& port_;
  bool has_reported_error_ = false;  ///< since RST
  util::Time now_{};                 ///< time of the current turn
  std::vector<Ending> waiting_;      ///< in WQE order; its capacity is kept
};

}  // namespace softhca::connectx

// Which process of the hub has each block of QP numbers, as a file in the fabric's directory. The
// hub writes it, and processes read it, so that they reach the process of a QP directly instead of
// by the station of shared addresses (station.h).
#pragma once

#include <optional>
#include <string>

#include "hub/roce_blocks.h"
#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::hub {

class BlockFile {
 public:
  static util::Result<BlockFile> create(const std::string& directory);

  /// 0: no process has the block. Block 0 is the station.
  void set(RoceBlock block, unsigned number);

 private:
  explicit BlockFile(os::UniqueFd file) : file_(std::move(file)) {}

  os::UniqueFd file_;
};

/// The process that has a block of the fabric in `directory`; 0: none. Nothing: it is not known.
std::optional<unsigned> process_of_block(const std::string& directory, RoceBlock block);
/// The number of the station; 0: there is none, or it is not known.
unsigned station_of(const std::string& directory);

}  // namespace softhca::hub

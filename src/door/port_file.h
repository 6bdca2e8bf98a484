// The port numbers of rdma_cm that the programs of a run share: a record for each in one file of
// the run's directory, locked by the process that has the number. However that process ends, the
// number is free. The file is opened once, so that a program may drop its privileges.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "rdma_cm/manager.h"

namespace softhca::door {

class PortFile final : public rdma_cm::PortNumbers {
 public:
  /// A process that is likely to take a number again is found for so long.
  static constexpr auto kStays = rdma_cm::Manager::kListenAgain;

  /// `directory`: of the run.
  static util::Result<std::unique_ptr<PortFile>> open(const std::string& directory);

  rdma_cm::Errno claim(std::uint16_t port_space, std::uint16_t port, const driver::Gid& own,
                       bool any) override;
  void release(std::uint16_t port_space, std::uint16_t port, bool returns) override;
  std::optional<driver::Gid> find(std::uint16_t port_space, std::uint16_t port) override;
  /// In a child that was forked: the numbers are the parent's.
  void leave_to_parent();

 private:
  /// What the file says of a number.
  struct Record {
    driver::Gid owner;
    std::int64_t left = 0;  ///< monotonic_now() when an owner that returns gave it up; else 0
    std::uint64_t any = 0;  ///< 1: of all addresses
  };

  PortFile(std::string directory, vfio_user::UniqueFd file)
      : run_(std::move(directory)), file_(std::move(file)) {}
  /// `type`: of fcntl(2). False: another process has locked the record.
  bool lock(std::uint16_t port_space, std::uint16_t port, short type) const;
  bool write(std::uint16_t port_space, std::uint16_t port, const Record& record) const;
  /// Another process has locked the record.
  bool is_taken(std::uint16_t port_space, std::uint16_t port) const;
  std::optional<Record> read(std::uint16_t port_space, std::uint16_t port) const;
  /// By a process that lives, and may take it again.
  bool was_just_left(const Record& record) const;

  std::string run_;
  vfio_user::UniqueFd file_;
  std::map<std::pair<std::uint16_t, std::uint16_t>, driver::Gid> claimed_;
};

}  // namespace softhca::door

// The rdma_cm port numbers that the programs of a run share. One file in the run's directory has a
// record for each number; the process that has the number locks the record. When that process ends,
// in whatever way, the number becomes free. The file is opened once, since a program may drop its
// privileges.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "rdma_cm/manager.h"

namespace softhca::door {

class PortFile final : public rdma_cm::PortNumbers {
 public:
  /// How long find() still reports a process that will probably claim the number again.
  static constexpr auto kStays = rdma_cm::Manager::kListenAgain;

  /// `directory`: of the run.
  static util::Result<std::unique_ptr<PortFile>> open(const std::string& directory);

  rdma_cm::Errno claim(std::uint16_t port_space, std::uint16_t port, const driver::Gid& own,
                       bool any) override;
  void release(std::uint16_t port_space, std::uint16_t port, bool returns) override;
  std::optional<driver::Gid> find(std::uint16_t port_space, std::uint16_t port) override;
  /// The address of this process if it has the number.
  std::optional<driver::Gid> own(std::uint16_t port_space, std::uint16_t port) const;
  rdma_cm::PortRange free_numbers() const override;
  /// Reads a file in the format of ip_local_port_range. If it has no range: Linux's default.
  static rdma_cm::PortRange read_range(const char* path);
  /// In a forked child: the numbers remain the parent's.
  void leave_to_parent();

 private:
  /// The record of a number.
  struct Record {
    driver::Gid owner;
    std::int64_t left = 0;  ///< monotonic_now() when an owner that will return released it; else 0
    std::uint64_t any = 0;  ///< 1: claimed for all addresses
  };

  PortFile(std::string directory, os::UniqueFd file)
      : run_(std::move(directory)), file_(std::move(file)) {}
  /// `type`: a lock type of fcntl(2). False: another process has locked the record.
  bool lock(std::uint16_t port_space, std::uint16_t port, short type) const;
  bool write(std::uint16_t port_space, std::uint16_t port, const Record& record) const;
  /// Whether another process has locked the record.
  bool is_taken(std::uint16_t port_space, std::uint16_t port) const;
  std::optional<Record> read(std::uint16_t port_space, std::uint16_t port) const;
  /// Whether it was released a short time ago, by a live process that may claim it again.
  bool was_just_left(const Record& record) const;

  std::string run_;
  os::UniqueFd file_;
  std::map<std::pair<std::uint16_t, std::uint16_t>, driver::Gid> claimed_;
};

}  // namespace softhca::door

// The port numbers of rdma_cm that the programs of a run share: a file for each in its directory,
// locked by the process that has it. Its end, whatever it be, gives the number free.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "rdma_cm/manager.h"

namespace softhca::door {

class PortFiles final : public rdma_cm::PortNumbers {
 public:
  /// Who has had a number is found for a moment longer: he may take it again.
  static constexpr auto kStays = rdma_cm::Manager::kListenAgain;

  /// `directory`: of the run.
  explicit PortFiles(const std::string& directory);

  bool claim(std::uint16_t port_space, std::uint16_t port, const driver::Gid& own) override;
  void release(std::uint16_t port_space, std::uint16_t port) override;
  std::optional<driver::Gid> find(std::uint16_t port_space, std::uint16_t port) override;

 private:
  /// The process that has given it up lives, and may take it again.
  bool was_just_left(int fd, const driver::Gid& owner) const;
  std::string path_of(std::uint16_t port_space, std::uint16_t port) const;

  struct Claim {
    vfio_user::UniqueFd lock;
    driver::Gid own;
  };

  std::string run_, directory_;
  std::map<std::pair<std::uint16_t, std::uint16_t>, Claim> claimed_;
};

}  // namespace softhca::door

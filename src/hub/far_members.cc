#include "hub/far_members.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstddef>

namespace softhca::hub {
namespace {

constexpr unsigned kBits = 8;  ///< of a byte
constexpr unsigned kNumbers = 65536;

std::string path_of(const std::string& directory) { return directory + "/far-members"; }
std::byte bit_of(unsigned number) { return static_cast<std::byte>(1u << number % kBits); }

}  // namespace

util::Result<FarMembers> FarMembers::create(const std::string& directory) {
  const auto path = path_of(directory);
  os::UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file || ::ftruncate(file.get(), kNumbers / kBits) != 0) return util::fail_errno(path);
  return FarMembers(std::move(file));
}

void FarMembers::set(unsigned block, const std::bitset<Numbers::kBlock>& living) {
  std::array<std::byte, Numbers::kBlock / kBits> bytes{};
  for (unsigned number = 0; number != Numbers::kBlock; ++number) {
    if (living[number]) bytes[number / kBits] |= bit_of(number);
  }
  (void)!::pwrite(file_.get(), bytes.data(), bytes.size(),
                  static_cast<off_t>(block * bytes.size()));
}

bool has_far_members(const std::string& directory) {
  return ::access(path_of(directory).c_str(), F_OK) == 0;
}

bool is_far_member(const std::string& directory, unsigned number) {
  const auto path = path_of(directory);
  const os::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  std::byte byte{};
  if (!file || number >= kNumbers) return false;
  if (::pread(file.get(), &byte, sizeof byte, static_cast<off_t>(number / kBits)) != 1) {
    return false;
  }
  return (byte & bit_of(number)) != std::byte{};
}

}  // namespace softhca::hub

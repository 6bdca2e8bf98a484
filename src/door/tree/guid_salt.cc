#include <fcntl.h>
#include <unistd.h>

#include "door/tree/tree.h"
#include "os/unique_fd.h"

namespace softhca::door {
namespace {

std::string path_of(const std::string& directory) { return directory + "/guid-salt"; }

}  // namespace

std::uint16_t read_guid_salt(const std::string& directory) {
  const os::UniqueFd file(
      ::open(path_of(directory).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  std::uint16_t salt = 0;
  return file && ::read(file.get(), &salt, sizeof salt) == sizeof salt ? salt : 0;
}

util::Result<void> write_guid_salt(const std::string& directory, std::uint16_t salt) {
  const os::UniqueFd file(::open(path_of(directory).c_str(),
                                 O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file && ::write(file.get(), &salt, sizeof salt) == sizeof salt) return {};
  return util::fail_errno(path_of(directory));
}

}  // namespace softhca::door

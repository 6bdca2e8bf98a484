#include "hub/block_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>

namespace softhca::hub {
namespace {

using Entry = std::uint32_t;

std::string file_of(const std::string& directory) { return directory + "/blocks"; }
constexpr off_t offset_of(RoceBlock block) { return off_t{block} * off_t{sizeof(Entry)}; }

}  // namespace

util::Result<BlockFile> BlockFile::create(const std::string& directory) {
  const auto path = file_of(directory);
  os::UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  constexpr auto kSize = offset_of(RoceBlocks::kLast) + off_t{sizeof(Entry)};
  if (!file || ::ftruncate(file.get(), kSize) != 0) return util::fail_errno(path);
  return BlockFile(std::move(file));
}

void BlockFile::set(RoceBlock block, unsigned number) {
  const Entry entry = number;
  (void)!::pwrite(file_.get(), &entry, sizeof entry, offset_of(block));
}

std::optional<unsigned> process_of_block(const std::string& directory, RoceBlock block) {
  const auto path = file_of(directory);
  const os::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  Entry entry = 0;
  if (!file || ::pread(file.get(), &entry, sizeof entry, offset_of(block)) != sizeof entry) {
    return std::nullopt;
  }
  return entry;
}

unsigned station_of(const std::string& directory) {
  return process_of_block(directory, 0).value_or(0);
}

}  // namespace softhca::hub

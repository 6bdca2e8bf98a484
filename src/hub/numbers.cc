#include "hub/numbers.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <string>

namespace softhca::hub {
namespace {

using os::UniqueFd;

/// Whether y of 198.18.x.y is usable: the first and last look like network and broadcast addresses.
bool is_given(unsigned number) {
  const auto low = number % Numbers::kBlock;
  return low != 0 && low != Numbers::kBlock - 1;
}

}  // namespace

unsigned Numbers::next(const std::function<bool(unsigned)>& taken) {
  const auto number = find(taken, claim_ != nullptr);
  return number != 0 || claim_ == nullptr ? number : find(taken, false);
}

unsigned Numbers::find(const std::function<bool(unsigned)>& taken, bool claims) {
  const auto before = last_;
  for (unsigned tries = 0; tries <= most_; ++tries) {
    last_ = last_ % most_ + 1;
    if (claims && !have(last_ / kBlock)) {
      const auto end = std::min(last_ | (kBlock - 1), most_);
      tries += end - last_;
      last_ = end;
    } else if (is_given(last_) && !taken(last_)) {
      return last_;
    }
  }
  last_ = before;
  return 0;
}

bool Numbers::have(unsigned block) {
  if (blocks_.contains(block)) return true;
  auto claimed = claim_(block);
  if (!claimed) return false;
  blocks_.emplace(block, std::move(claimed));
  return true;
}

void Numbers::give_back(const std::function<bool(unsigned first, unsigned last)>& used) {
  std::erase_if(blocks_, [&](const auto& entry) {
    const auto first = entry.first * kBlock;
    return entry.first != last_ / kBlock && !used(first, first + kBlock - 1);
  });
}

UniqueFd claim_on_this_machine(unsigned block) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // unix(7): an abstract name begins with a zero byte.
  const auto name = fmt::format("softhca-198.18.{}", block);
  std::ranges::copy(name, address.sun_path + 1);
  const auto size = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address),
                        static_cast<socklen_t>(size)) != 0) {
    return {};
  }
  return socket;
}

unsigned random_block() {
  std::uint8_t block = 0;
  (void)!::getrandom(&block, sizeof block, 0);
  return block;
}

}  // namespace softhca::hub

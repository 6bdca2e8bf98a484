// The requests of a process to the hub, on its socket after Hello. Each is a byte that names it,
// and its contents.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hub/cm_dispatch.h"
#include "hub/hello.h"
#include "wire/gid.h"

namespace softhca::hub {

struct Request {
  enum class Kind : char {
    kAcceptLinks = kWilling,  ///< the process accepts links to others. Once
    kShare = 's',             ///< asks for its block: RoceAnswer. It will share addresses
    kJoinAddress = 'j',       ///< asks for its RoCEv2 socket at `address`: RoceAnswer
    kLeaveAddress = 'q',      ///< it closes that socket
    kListen = 'l',            ///< requests of communication managers for `service` at `address`
                              ///< are for it
    kUnlisten = 'u',          ///< no longer
  };

  Kind kind = Kind::kAcceptLinks;
  wire::Gid address{};
  std::uint64_t service = 0;

  bool is_about_a_listener() const { return kind == Kind::kListen || kind == Kind::kUnlisten; }
  /// @pre is_about_a_listener()
  CmService cm_service() const { return {.id = service, .address = address}; }

  /// Bytes of the longest request.
  static constexpr std::size_t kSizeMax = 1 + wire::Gid::kSize + sizeof(service);
  /// Writes the request to `out`, and returns its bytes.
  std::span<const std::byte> write(std::span<std::byte, kSizeMax> out) const;
};

/// Takes requests out of the bytes of a socket, which may arrive in any pieces.
class RequestReader {
 public:
  enum class Result : std::uint8_t { kMore, kRequest, kNonsense };

  /// Takes one byte. kRequest: it completes `request`.
  Result take(std::byte byte, Request& request);

 private:
  std::array<std::byte, Request::kSizeMax> bytes_{};
  std::size_t size_ = 0;
};

/// The hub's answer to kShare and kJoinAddress, on the socket, in the order of the requests. If an
/// address is granted, it comes with a descriptor: the process's member of the address's group
/// (roce_group.h). To a process that accepts links, the hub also sends a note (kIntroduced, about
/// itself), as for an Introduction.
struct RoceAnswer {
  std::uint32_t number = 0;   ///< distinguishes it from an Introduction, whose number is not 0
  std::uint8_t refusal = 0;   ///< RoceRefusal::Kind
  std::uint8_t block = 0;     ///< upper 8 bits of the process's QP numbers and communication IDs
  std::uint16_t station = 0;  ///< the number of the station of shared addresses (station.h)
  std::int32_t error = 0;     ///< of the refusal
  std::uint32_t holder = 0;   ///< of the refusal
};
static_assert(sizeof(RoceAnswer) == 16);

}  // namespace softhca::hub

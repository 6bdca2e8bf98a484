// Questions for the process that has a port number of librdmacm at an address of its machine, and
// the answers: Ethernet frames with the other EtherType of local experiments (IEEE 802 9.2.3.4;
// 88-B5). Unlike the notes of links they cross to other machines.
//
// The addresses of programs are not those of their machines. ARP finds a program's address. All
// programs of a machine share the machine's address, so the port number selects the program.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "util/field.h"
#include "wire/ethernet.h"
#include "wire/frame.h"
#include "wire/gid.h"

namespace softhca::hub {

struct Service {
  wire::Gid machine;             ///< an address of the machine
  std::uint16_t port_space = 0;  ///< of librdmacm
  std::uint16_t port = 0;

  friend auto operator<=>(const Service&, const Service&) = default;
};

struct ServiceNote {
  enum class Kind : std::uint8_t { kQuestion = 1, kAnswer };

  static constexpr std::uint16_t kEtherType = 0x88b5;

  wire::MacAddress to;
  wire::MacAddress from;
  Kind kind = Kind::kQuestion;
  Service service = {};
  wire::Gid owner = {};  ///< kAnswer: an address of the process that has the service

  /// Nothing: the frame is no note.
  static std::optional<ServiceNote> parse(const wire::Frame& frame);
  wire::Frame frame() const;
};

}  // namespace softhca::hub

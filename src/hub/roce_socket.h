// A UDP socket that carries RoCEv2 for one IP address of the host (IBTA Annex A17): the kernel
// routes its packets as any others, so peers may be anywhere. This code runs inside arbitrary
// programs: it makes no call that blocks, and allocates nothing after it is made.
//
// The payload goes from the program's memory to the kernel: that is the only copy of a sender. A
// program that changes a buffer while it is sent makes the ICRC wrong, and the receiver drops the
// packet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fabric/port.h"
#include "hub/merged_datagram.h"
#include "hub/roce_departures.h"
#include "os/unique_fd.h"
#include "util/result.h"
#include "wire/gid.h"
#include "wire/roce_datagram.h"

namespace softhca::hub {

/// Why packets were lost at a socket.
struct RoceLosses {
  std::uint64_t too_long = 0;     ///< longer than the MTU of the interface or the path
  std::uint64_t no_room = 0;      ///< the kernel's buffers were full
  std::uint64_t unreachable = 0;  ///< no route, or no neighbor (also by ICMP)
  std::uint64_t refused = 0;      ///< by a firewall, or by the peer's host (ICMP)
  std::uint64_t fault = 0;        ///< the program's memory has gone
  std::uint64_t other = 0;        ///< any other error of the kernel, or a frame that is no packet
  std::uint64_t corrupt = 0;      ///< received with a wrong ICRC
  std::uint64_t malformed = 0;    ///< received, but no packet
  std::uint64_t own = 0;          ///< the process's own, which a group returned

  /// Calls `visit(name, count)` with each.
  template <class Visit>
  void for_each(Visit&& visit) const {
    visit("lost_too_long", too_long);
    visit("lost_no_room", no_room);
    visit("lost_unreachable", unreachable);
    visit("lost_refused", refused);
    visit("lost_fault", fault);
    visit("lost_other", other);
    visit("dropped_corrupt", corrupt);
    visit("dropped_malformed", malformed);
    visit("dropped_own", own);
  }
};

class RoceSocket {
 public:
  struct Counters {
    std::uint64_t sent = 0;      ///< packets
    std::uint64_t messages = 0;  ///< with these packets: the kernel cuts some of them (UDP_SEGMENT)
    std::uint64_t received = 0;  ///< packets
    RoceLosses lost;
  };
  /// Most packets of one send().
  static constexpr std::size_t kSendMax = RoceDepartures::kPacketsMax;

  /// Takes a UDP socket that is bound to `address` and RoCEv2's port. Sets its options.
  static util::Result<std::unique_ptr<RoceSocket>> adopt(os::UniqueFd socket,
                                                         const wire::Gid& address);
  ~RoceSocket();
  /// Whether the kernel may merge arriving datagrams of one sender (UDP_GRO), whose checksum is not
  /// 0. It steers merged datagrams by the first one only, so among sockets that
  /// share a port only one may be in use.
  static void set_merging(int socket, bool on);

  /// From now on, drops packets of these sources.
  void set_own(std::vector<wire::Gid> sources) { own_ = std::move(sources); }
  /// Sends to multicast groups by the interface with this index; 0: the kernel chooses one.
  void set_group_interface(unsigned interface);

  const wire::Gid& address() const { return address_; }
  /// Readable when packets have come.
  int fd() const { return socket_.get(); }
  /// Closes the socket in a forked child.
  void leave_to_parent() { socket_.reset(); }

  /// Sends up to kSendMax packets, in order. Packets of a batch (RoceBatch) leave as one message,
  /// with UDP checksums, which Linux then demands. Whatever the kernel does not take is lost, as on
  /// a wire. @pre their source is address()
  void send(std::span<const wire::RoceDatagram> packets);
  /// Transmits at most `frames` received packets by `port`, which must always be the same one.
  /// A message of the kernel with several packets may exceed that. Calls `on_source(source)` before
  /// those of each message. Returns their number.
  template <class OnSource>
  std::size_t receive(fabric::Port& port, wire::DatagramReader& reader, std::size_t frames,
                      OnSource&& on_source) {
    give_back(port.released());
    std::size_t count = 0;
    for (bool more = true; more && count < frames;) {
      const auto batch = take(frames - count);
      more = batch.is_full;
      for (std::size_t i = 0; i != batch.count; ++i) {
        auto arrival = arrive(batch.first + i, i);
        count += arrival.count;
        bool any = false;
        for (auto left = arrival.count; left != 0; --left) {
          auto& frame = port.draft();
          if (!read(arrival, reader, frame)) continue;
          if (!std::exchange(any, true)) on_source(arrival.path.source);
          last_number_ = port.transmit(frame);
        }
        note_number(batch.first + i);
      }
    }
    return count;
  }
  /// Bytes that the kernel takes now; SIZE_MAX: not known.
  std::size_t room();
  /// At least this many bytes have left the kernel's buffer, as of the last room().
  std::uint64_t drained() const { return drained_; }
  /// Whether the buffer held packets then.
  bool is_draining() const { return queued_ != 0; }
  const Counters& counters() const { return counters_; }
  /// Calls of the kernel that found no packet, modulo 2^32.
  std::uint32_t empty_receives() const { return empty_; }
  /// The last error of a destination that ICMP or the neighbor table has reported.
  struct Complaint {
    wire::Gid to;
    int error = 0;  ///< errno; 0: nothing
  };
  bool has_complaint() const { return complaint_.error != 0; }
  Complaint take_complaint() { return std::exchange(complaint_, {}); }

 private:
  /// Messages of one call of the kernel.
  static constexpr std::size_t kBatch = 32;
  struct Batch {
    std::size_t first = 0;  ///< slot of the first message
    std::size_t count = 0;
    bool is_full = false;  ///< there may be more
  };
  /// A received message.
  struct Arrival {
    bool is_ours = false;  ///< of the socket's IP version
    bool is_own = false;   ///< of one of own_
    wire::DatagramPath path{};
    MergedDatagram datagrams{{}, 0};
    std::size_t count = 0;  ///< of datagrams
  };
  struct Arrivals;

  RoceSocket(os::UniqueFd socket, const wire::Gid& address);
  Batch take(std::size_t most);
  Arrival arrive(std::size_t slot, std::size_t index);
  bool read(Arrival& arrival, wire::DatagramReader& reader, wire::Frame& frame);
  void note_number(std::size_t slot);
  void give_back(std::uint64_t released);
  int send_messages(std::size_t at);
  void set_checksums(bool on);
  void note_error(int error, std::size_t packets);
  bool take_errors(std::size_t& most);

  os::UniqueFd socket_;
  const wire::Gid address_;
  std::vector<wire::Gid> own_;
  std::size_t send_buffer_ = 0;  ///< SO_SNDBUF
  std::size_t queued_ = 0;       ///< bytes in that buffer at the last room()
  std::size_t unseen_ = 0;       ///< most bytes that were sent since then
  std::uint64_t drained_ = 0;
  std::unique_ptr<Arrivals> arrivals_;
  std::unique_ptr<RoceDepartures> departures_;
  bool sums_ = false;                    ///< the kernel adds checksums
  bool batched_ = false;                 ///< a batch was sent
  std::size_t last_part_ = 0;            ///< bytes of each part of the last merged message
  bool batches_ = true;                  ///< the kernel has not refused them
  std::size_t packets_per_message_ = 1;  ///< most in the messages that came last
  std::uint64_t last_number_ = 0;        ///< of the last frame transmitted
  bool is_quiet_ = false;                ///< nothing came last time
  bool errors_left_ = false;             ///< the queue of errors may hold some
  std::uint32_t empty_ = 0;              ///< receives without a packet
  Counters counters_;
  Complaint complaint_;
};

}  // namespace softhca::hub

#include "rdma/send_window.h"

namespace softhca::rdma {

void SendWindow::reset() {
  clear();
  answered_ = cursor_ = begun_ = 0;
  next_psn_ = unacked_ = sent_end_ = 0;
  next_packet_ = 0;
  cursor_packet_ = reads_in_flight_ = 0;
}

std::uint64_t SendWindow::in_flight(bool reliable) const {
  const auto acked = acked_packets(reliable);
  const auto sent = all_sent() ? next_packet_ : entry(cursor_).first_packet + cursor_packet_;
  return sent > acked ? sent - acked : 0;
}

void SendWindow::rewind() {
  cursor_ = head();
  cursor_packet_ = 0;
  reads_in_flight_ = 0;
  skip_done();
}

void SendWindow::skip_done() {
  if (cursor_ < head()) {
    cursor_ = head();
    cursor_packet_ = 0;
  }
  while (cursor_ < begun_ && done(entry(cursor_))) pass(entry(cursor_));
  if (cursor_ < begun_ && !entry(cursor_).wants_data()) {
    const auto progressed = static_cast<std::uint32_t>(progress(entry(cursor_)));
    cursor_packet_ = std::max(cursor_packet_, progressed);
  }
}

void SendWindow::withdraw() {
  next_psn_ = unacked_ = sent_end_;
  for (auto i = head(); i != tail(); ++i) {
    auto& e = entry(i);
    e.psns = e.packets = 0;
    e.first_psn = next_psn_;
    e.first_packet = next_packet_;
  }
  cursor_ = begun_ = tail();
  cursor_packet_ = 0;
}

void SendWindow::settle() {
  cursor_ = begun_ = head();
  cursor_packet_ = 0;
  reads_in_flight_ = 0;
  unacked_ = sent_end_ = next_psn_;
}

}  // namespace softhca::rdma

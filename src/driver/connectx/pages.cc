#include "driver/connectx/pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace softhca::driver::connectx {

using spec::command_opcode;
using spec::manage_pages_in;
using spec::manage_pages_op_mod;
using spec::manage_pages_out;
using spec::query_pages_in;
using spec::query_pages_out;

namespace {

/// Most pages per MANAGE_PAGES: limits the mailboxes.
constexpr std::size_t kBatch = 4096;

}  // namespace

util::Result<void> Pages::give_for(spec::query_pages_op_mod stage) {
  Request<query_pages_in> in(command_opcode::QUERY_PAGES);
  in.set(query_pages_in::op_mod, static_cast<std::uint16_t>(stage));
  const auto out = commands_.execute<query_pages_out>(in);
  if (!out) return tl::unexpected(out.error());
  return handle_request(static_cast<std::int32_t>(out->get(query_pages_out::num_pages)));
}

util::Result<void> Pages::handle_request(std::int32_t count) {
  while (count > 0) {
    const auto batch = std::min<std::size_t>(static_cast<std::size_t>(count), kBatch);
    if (auto given = give(batch); !given) {
      // Without an answer the device would wait; after this one it asks again later.
      (void)refuse();
      return given;
    }
    count -= static_cast<std::int32_t>(batch);
  }
  while (count < 0) {
    const auto batch =
        std::min<std::size_t>(static_cast<std::size_t>(-std::int64_t{count}), kBatch);
    const auto taken = take(batch);
    if (!taken) return tl::unexpected(taken.error());
    if (*taken == 0) break;  // the device will ask again
    count += static_cast<std::int32_t>(*taken);
  }
  return {};
}

util::Result<void> Pages::give(std::size_t count) {
  Request<manage_pages_in> in(command_opcode::MANAGE_PAGES, count * manage_pages_in::pas_size);
  in.set(manage_pages_in::op_mod, static_cast<std::uint16_t>(manage_pages_op_mod::GIVE));
  in.set(manage_pages_in::input_num_entries, static_cast<std::uint32_t>(count));
  std::vector<DmaBuffer> pages;
  for (std::size_t i = 0; i < count; ++i) {
    auto page = DmaBuffer::allocate(host_, Host::kPageSize);
    if (!page) return tl::unexpected(page.error());
    util::store_be64(in.all().data() + manage_pages_in::pas_offset + i * manage_pages_in::pas_size,
                     page->iova());
    pages.push_back(std::move(*page));
  }
  if (auto done = commands_.run(in); !done) return done;
  for (auto& page : pages) given_.emplace(page.iova(), std::move(page));
  return {};
}

util::Result<void> Pages::refuse() {
  Request<manage_pages_in> in(command_opcode::MANAGE_PAGES);
  in.set(manage_pages_in::op_mod, static_cast<std::uint16_t>(manage_pages_op_mod::CANT_GIVE));
  return commands_.run(in);
}

util::Result<std::size_t> Pages::take(std::size_t count) {
  Request<manage_pages_in> in(command_opcode::MANAGE_PAGES);
  in.set(manage_pages_in::op_mod, static_cast<std::uint16_t>(manage_pages_op_mod::TAKE));
  in.set(manage_pages_in::input_num_entries, static_cast<std::uint32_t>(count));
  const auto out = commands_.execute<manage_pages_out>(in, count * manage_pages_out::pas_size);
  if (!out) return tl::unexpected(out.error());
  const std::size_t taken = out->get(manage_pages_out::output_num_entries);
  if (taken > count) return util::fail("MANAGE_PAGES: more pages came back than were asked for");
  for (std::size_t i = 0; i < taken; ++i) {
    const auto* at =
        out->all().data() + manage_pages_out::pas_offset + i * manage_pages_out::pas_size;
    const auto address = util::load_be64(at);
    if (given_.erase(address) == 0) {
      return util::fail(
          fmt::format("MANAGE_PAGES: page {:#x} came back, but was not given", address));
    }
  }
  return taken;
}

util::Result<void> Pages::reclaim_all() {
  // PRM 8.3: "Call MANAGE_PAGES in loop till all pages are reclaimed".
  while (!given_.empty()) {
    const auto taken = take(std::min(given_.size(), kBatch));
    if (!taken) return tl::unexpected(taken.error());
    if (*taken == 0) {
      return util::fail(fmt::format("the device keeps {} pages (PRM 8.3)", given_.size()));
    }
  }
  return {};
}

}  // namespace softhca::driver::connectx

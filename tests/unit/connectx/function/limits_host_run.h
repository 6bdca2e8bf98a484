// How LimitsHost sends a command with a list of pages.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "connectx/function/limits_host.h"
#include "util/endian.h"

namespace softhca::connectx {

/// Pages of the largest queue. All of them map to one unused page of memory.
inline constexpr std::size_t kLimitsHostPages = 64;

template <class Out, class Field>
std::uint32_t number_in(const Reply& reply, Field field) {
  EXPECT_TRUE(reply.ok()) << to_string(reply.status());
  return reply.ok() ? reply.as<Out>().get(field) : 0;
}

template <class In, class Out, class Fill>
Reply LimitsHost::run(Opcode opcode, Fill fill, std::size_t pages, std::uint16_t op_mod) {
  std::vector<std::byte> list(8 * pages);
  for (std::size_t i = 0; i < pages; ++i) util::store_be64(list.data() + 8 * i, memory_);
  return host_.call<Out, In>(opcode, fill, list, op_mod);
}

}  // namespace softhca::connectx

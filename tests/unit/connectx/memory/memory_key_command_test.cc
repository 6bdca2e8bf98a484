// CREATE_MKEY, QUERY_MKEY, DESTROY_MKEY (PRM 12.5).

#include <gtest/gtest.h>

#include <cstring>

#include "connectx/base/resources.h"
#include "connectx/fake_host.h"
#include "connectx/memory/memory_keys.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/mkey.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Opcode = FakeHost::Opcode;
using Code = s::command_status;
using MkeyContext = s::mkey_context;
using Create = s::create_mkey_in;
using Mode = s::mkey_access_mode;

class MemoryKeyCommandTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kStart = 0x7F00'0000'0800;

  MemoryKeyCommandTest() {
    host.initialize();
    pd = host.allocate_pd();
    memory = host.allocate(16 * 4096);
  }

  Input<Create> make(Mode mode, std::size_t tail_octwords = 0) {
    Input<Create> in(Opcode::CREATE_MKEY, 0, 16 * tail_octwords);
    in->set(Create::translations_octword_actual_size, static_cast<std::uint32_t>(tail_octwords));
    const auto context = (*in).sub(Create::mkey_context);
    context.set(MkeyContext::access_mode, static_cast<std::uint32_t>(mode) & 3);
    context.set(MkeyContext::access_mode_4_2, static_cast<std::uint32_t>(mode) >> 2);
    context.set(MkeyContext::lr, 1);
    context.set(MkeyContext::lw, 1);
    context.set(MkeyContext::qpn, 0xFFFFFF);
    context.set(MkeyContext::mkey, 0x42);
    context.set(MkeyContext::pd, pd);
    context.set(MkeyContext::translations_octword_size, static_cast<std::uint32_t>(tail_octwords));
    return in;
  }
  /// 2.5 pages, starting in the middle of the first.
  Input<Create> make_mtt() {
    auto in = make(Mode::MTT, 2);
    const auto context = (*in).sub(Create::mkey_context);
    context.set(MkeyContext::start_addr, kStart);
    context.set(MkeyContext::len, 0x2000 + 0x400);
    context.set(MkeyContext::log_page_size, 12);
    // The pages are out of order on the bus.
    in.set_address(0, memory + 0x5000);
    in.set_address(1, memory + 0x2000);
    in.set_address(2, memory + 0x9000);
    return in;
  }
  Reply create(Input<Create>& in) { return host.execute<s::create_mkey_out>(in); }
  std::uint32_t index_of(const Reply& reply) {
    EXPECT_TRUE(reply.ok());
    return reply.as<s::create_mkey_out>().get(s::create_mkey_out::mkey_index);
  }
  bool write(std::uint32_t key, std::uint64_t address, std::span<const std::byte> bytes) {
    auto& table = host.device.driver().memory_keys().table();
    const auto check = table.check(rdma::MKey(key), {.pd = rdma::Pd(pd), .qpn = rdma::Qpn(5)},
                                   address, bytes.size(), rdma::kLocalWrite);
    return check && table.write(*check.key, address, bytes);
  }
  Code destroy(std::uint32_t index) {
    Input<s::destroy_mkey_in> in(Opcode::DESTROY_MKEY);
    in->set(s::destroy_mkey_in::mkey_index, index);
    return host.execute<s::destroy_mkey_out>(in).status();
  }

  FakeHost host;
  std::uint32_t pd = 0;
  std::uint64_t memory = 0;
};

TEST_F(MemoryKeyCommandTest, PhysicalKeyMapsVirtualToBusAddresses) {
  auto in = make(Mode::PA);
  (*in).sub(Create::mkey_context).set(MkeyContext::length64, 1);
  const auto index = index_of(create(in));
  const std::array<std::byte, 3> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  EXPECT_TRUE(write(index << 8 | 0x42, memory + 100, bytes));
  EXPECT_EQ(std::memcmp(host.at(memory + 100), bytes.data(), 3), 0);
  EXPECT_FALSE(write(index << 8 | 0x43, memory + 100, bytes)) << "another variant is another key";
}

TEST_F(MemoryKeyCommandTest, PageListMapsFromThePageThatContainsTheStart) {
  auto in = make_mtt();
  const auto key = index_of(create(in)) << 8 | 0x42;
  std::vector<std::byte> bytes(0x2400);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  ASSERT_TRUE(write(key, kStart, bytes));
  EXPECT_EQ(std::memcmp(host.at(memory + 0x5800), bytes.data(), 0x800), 0);
  EXPECT_EQ(std::memcmp(host.at(memory + 0x2000), bytes.data() + 0x800, 0x1000), 0);
  EXPECT_EQ(std::memcmp(host.at(memory + 0x9000), bytes.data() + 0x1800, 0xC00), 0);
  EXPECT_FALSE(write(key, kStart + 1, bytes)) << "beyond the end";
}

TEST_F(MemoryKeyCommandTest, LargePagesAreUnderstood) {
  auto in = make(Mode::MTT, 1);
  const auto context = (*in).sub(Create::mkey_context);
  context.set(MkeyContext::start_addr, 0x10000);
  context.set(MkeyContext::len, 0x8000);
  context.set(MkeyContext::log_page_size, 15);
  in.set_address(0, memory);
  const auto key = index_of(create(in)) << 8 | 0x42;
  const std::array<std::byte, 2> bytes{std::byte{9}, std::byte{8}};
  EXPECT_TRUE(write(key, 0x17FFE, bytes));
  EXPECT_EQ(std::memcmp(host.at(memory + 0x7FFE), bytes.data(), 2), 0);
}

// PRM 12.5.1, pg_access; Table 12: each page has its own rd_en and wr_en.
TEST_F(MemoryKeyCommandTest, EachPageHasItsOwnRights) {
  auto in = make_mtt();
  in->set(Create::pg_access, 1);
  in.set_address(0, (memory + 0x5000) | 3);
  in.set_address(1, (memory + 0x2000) | 1);  // not writable
  in.set_address(2, (memory + 0x9000) | 3);
  const auto key = index_of(create(in)) << 8 | 0x42;
  const std::array<std::byte, 1> one{};
  const std::array<std::byte, 0x800> rest_of_page{};
  EXPECT_TRUE(write(key, kStart, rest_of_page)) << "the first page, from its middle";
  EXPECT_FALSE(write(key, kStart + 0x800, one)) << "the second";
  EXPECT_FALSE(write(key, kStart + 0x7FF, rest_of_page)) << "across the border";
  EXPECT_FALSE(write(key, kStart + 0x17FF, one));
  EXPECT_TRUE(write(key, kStart + 0x1800, one)) << "the third";
}

TEST_F(MemoryKeyCommandTest, NeighboursOnTheBusKeepTheirOwnRights) {
  auto in = make_mtt();
  in->set(Create::pg_access, 1);
  in.set_address(0, (memory + 0x5000) | 1);
  in.set_address(1, (memory + 0x6000) | 3);
  in.set_address(2, (memory + 0x7000) | 3);
  const auto key = index_of(create(in)) << 8 | 0x42;
  const std::array<std::byte, 1> one{};
  EXPECT_FALSE(write(key, kStart, one));
  EXPECT_TRUE(write(key, kStart + 0x800, one));
}

TEST_F(MemoryKeyCommandTest, KlmListMakesOneRangeOfOtherKeys) {
  auto base = make_mtt();
  const auto target = index_of(create(base)) << 8 | 0x42;
  auto in = make(Mode::KLM, 2);
  const auto context = (*in).sub(Create::mkey_context);
  context.set(MkeyContext::start_addr, 0);
  context.set(MkeyContext::len, 0x30);
  for (unsigned i = 0; i < 2; ++i) {
    const util::MutableView<s::klm_entry> klm(in.tail().subspan(16 * i, 16));
    klm.set(s::klm_entry::byte_count, 0x10 + 0x10 * i);
    klm.set(s::klm_entry::mkey, target);
    klm.set(s::klm_entry::address, kStart + 0x1000 * (1 - i));
  }
  const auto key = index_of(create(in)) << 8 | 0x42;
  std::vector<std::byte> bytes(0x30, std::byte{0x77});
  ASSERT_TRUE(write(key, 0, bytes));
  EXPECT_EQ(std::memcmp(host.at(memory + 0x2800), bytes.data(), 0x10), 0);
  EXPECT_EQ(std::memcmp(host.at(memory + 0x5800), bytes.data(), 0x20), 0);
}

TEST_F(MemoryKeyCommandTest, AsManyKeysOfAListAreReportedAsThereIsRoomFor) {
  auto base = make_mtt();
  const auto target = index_of(create(base)) << 8 | 0x42;
  auto in = make(Mode::KLM, 6);
  const auto context = (*in).sub(Create::mkey_context);
  context.set(MkeyContext::start_addr, 0);
  context.set(MkeyContext::len, 0x60);
  for (unsigned i = 0; i < 6; ++i) {
    const util::MutableView<s::klm_entry> klm(in.tail().subspan(16 * i, 16));
    klm.set(s::klm_entry::byte_count, 0x10);
    klm.set(s::klm_entry::mkey, target);
    klm.set(s::klm_entry::address, kStart + 0x100 * i);
  }
  Input<s::query_mkey_in> query(Opcode::QUERY_MKEY);
  query->set(s::query_mkey_in::mkey_index, index_of(create(in)));
  using Out = s::query_mkey_out;
  for (const std::size_t more : {0u, 2u, 4u, 6u}) {
    const auto reply = host.execute<Out>(query, more * 16);
    ASSERT_TRUE(reply) << reply.reason();
    const auto told = std::span(reply.out).subspan(Out::bsf0_klm0_pas_mtt0_1.kOffset);
    ASSERT_EQ(told.size(), (2 + more) * 16);
    for (unsigned i = 0; i < 2 + more; ++i) {
      const util::View<s::klm_entry> klm(told.subspan(16 * i, 16));
      EXPECT_EQ(klm.get(s::klm_entry::address), i < 6 ? kStart + 0x100 * i : 0) << i;
    }
  }
}

TEST_F(MemoryKeyCommandTest, AFreeKeyGivesNoAccess) {
  auto in = make_mtt();
  (*in).sub(Create::mkey_context).set(MkeyContext::free, 1);
  const auto key = index_of(create(in)) << 8 | 0x42;
  const std::array<std::byte, 1> bytes{};
  EXPECT_FALSE(write(key, kStart, bytes));
}

// PRM Table 10, qpn: "0xFFFFFF: MKey can be used by any QP".
TEST_F(MemoryKeyCommandTest, AKeyOfOneQpIsForThatQpAlone) {
  const std::array<std::byte, 1> bytes{};
  for (const auto qpn : {5u, 6u}) {
    auto in = make_mtt();
    (*in).sub(Create::mkey_context).set(MkeyContext::qpn, qpn);
    const auto key = index_of(create(in)) << 8 | 0x42;
    EXPECT_EQ(write(key, kStart, bytes), qpn == 5) << "QP 5 uses the key of QP " << qpn;
  }
}

TEST_F(MemoryKeyCommandTest, EachRightHasItsOwnBit) {
  using Key = rdma::MemoryKey::Attributes;
  const auto access = [&](auto bit) {
    auto in = make_mtt();
    const auto context = (*in).sub(Create::mkey_context);
    context.set(MkeyContext::lr, 0);
    context.set(MkeyContext::lw, 0);
    context.set(bit, 1);
    const auto index = index_of(create(in));
    const Key& key = host.device.driver().memory_keys().table().find_index(index)->attributes();
    return key.access;
  };
  EXPECT_EQ(access(MkeyContext::lr), rdma::kLocalRead);
  EXPECT_EQ(access(MkeyContext::lw), rdma::kLocalWrite);
  EXPECT_EQ(access(MkeyContext::rr), rdma::kRemoteRead);
  EXPECT_EQ(access(MkeyContext::rw), rdma::kRemoteWrite);
  EXPECT_EQ(access(MkeyContext::a), rdma::kRemoteAtomic);
}

TEST_F(MemoryKeyCommandTest, AKeyMayEndWithTheAddressSpace) {
  const auto status = [&](std::uint64_t length) {
    auto in = make(Mode::PA);
    const auto context = (*in).sub(Create::mkey_context);
    context.set(MkeyContext::start_addr, ~0xFFFull);
    context.set(MkeyContext::len, length);
    return create(in).status();
  };
  EXPECT_EQ(status(0x1000), Code::OK);
  EXPECT_EQ(status(0x1001), Code::BAD_PARAM);
}

// PRM Table 10, en_rinval: a peer's SEND with invalidate may invalidate the key only if it is set.
TEST_F(MemoryKeyCommandTest, OnlyAKeyThatEnablesItIsInvalidatedByThePeer) {
  for (const auto enabled : {0u, 1u}) {
    auto in = make_mtt();
    (*in).sub(Create::mkey_context).set(MkeyContext::en_rinval, enabled);
    const auto index = index_of(create(in));
    auto* key = host.device.driver().memory_keys().table().find_index(index);
    EXPECT_EQ(key->attributes().invalidatable, enabled != 0);
  }
}

TEST_F(MemoryKeyCommandTest, ADestroyedKeyGivesNoAccess) {
  auto in = make_mtt();
  const auto index = index_of(create(in));
  EXPECT_EQ(destroy(index), Code::OK);
  const std::array<std::byte, 1> bytes{};
  EXPECT_FALSE(write(index << 8 | 0x42, kStart, bytes));
  EXPECT_EQ(destroy(index), Code::BAD_RESOURCE);
}

TEST_F(MemoryKeyCommandTest, QueryGivesContextAndFirstTranslations) {
  auto in = make_mtt();
  const auto index = index_of(create(in));
  Input<s::query_mkey_in> query(Opcode::QUERY_MKEY);
  query->set(s::query_mkey_in::mkey_index, index);
  using Out = s::query_mkey_out;
  const auto reply = host.execute<Out>(query);
  ASSERT_TRUE(reply.ok());
  const auto context = reply.as<Out>().get(Out::mkey_context);
  EXPECT_EQ(context.get(MkeyContext::start_addr), kStart);
  EXPECT_EQ(context.get(MkeyContext::pd), pd);
  const auto first = reply.as<Out>().get(Out::bsf0_klm0_pas_mtt0_1);
  EXPECT_EQ(util::load_be64(first.data()), memory + 0x5000);
  EXPECT_EQ(context.get(MkeyContext::free), 0u);
  // The effect of a SEND with invalidate.
  host.device.driver().memory_keys().table().find_index(index)->set_free(true);
  const auto later = host.execute<Out>(query);
  EXPECT_EQ(later.as<Out>().get(Out::mkey_context).get(MkeyContext::free), 1u);
  query->set(s::query_mkey_in::mkey_index, index + 1);
  EXPECT_EQ(host.execute<Out>(query).status(), Code::BAD_RESOURCE);
}

TEST_F(MemoryKeyCommandTest, BadContextsAreRefused) {
  struct Case {
    const char* what;
    Code status;
    void (*spoil)(Input<Create>&);
  };
  const Case cases[] = {
      {"unknown PD", Code::BAD_RESOURCE,
       [](auto& in) { (*in).sub(Create::mkey_context).set(MkeyContext::pd, 0xABCDEF); }},
      {"pages that are too few", Code::BAD_PARAM,
       [](auto& in) { (*in).sub(Create::mkey_context).set(MkeyContext::len, 0x8000); }},
      {"endless length", Code::BAD_PARAM,
       [](auto& in) { (*in).sub(Create::mkey_context).set(MkeyContext::len, ~0ull); }},
      {"more translations than announced", Code::BAD_PARAM,
       [](auto& in) {
         (*in).sub(Create::mkey_context).set(MkeyContext::translations_octword_size, 1);
       }},
      {"tiny pages", Code::BAD_PARAM,
       [](auto& in) { (*in).sub(Create::mkey_context).set(MkeyContext::log_page_size, 3); }},
      {"giant pages", Code::BAD_PARAM,
       [](auto& in) { (*in).sub(Create::mkey_context).set(MkeyContext::log_page_size, 63); }},
      {"signature key", Code::BAD_PARAM,
       [](auto& in) { (*in).sub(Create::mkey_context).set(MkeyContext::bsf_en, 1); }},
      {"unknown access mode", Code::BAD_PARAM,
       [](auto& in) { (*in).sub(Create::mkey_context).set(MkeyContext::access_mode_4_2, 1); }},
      {"page access with KLM", Code::BAD_PARAM,
       [](auto& in) {
         in->set(Create::pg_access, 1);
         (*in).sub(Create::mkey_context).set(MkeyContext::access_mode, 2);
       }},
      {"unknown UMEM", Code::BAD_RESOURCE, [](auto& in) { in->set(Create::mkey_umem_valid, 1); }},
      {"list that is not there", Code::BAD_PARAM,
       [](auto& in) {
         in->set(Create::translations_octword_actual_size, ~0u);
         (*in).sub(Create::mkey_context).set(MkeyContext::translations_octword_size, ~0u);
         (*in).sub(Create::mkey_context).set(MkeyContext::len, 1ull << 40);
       }},
  };
  for (const auto& c : cases) {
    auto in = make_mtt();
    c.spoil(in);
    EXPECT_EQ(create(in).status(), c.status) << c.what;
  }
  EXPECT_EQ(host.device.driver().memory_keys().count(), 0u);
}

TEST_F(MemoryKeyCommandTest, AGuestCannotMakeTheDeviceRememberAddressesWithoutEnd) {
  auto& budget = host.device.driver().resources().translations();
  const auto all = budget.left();
  auto in = make_mtt();
  const auto index = index_of(create(in));
  EXPECT_EQ(budget.left(), all - 3);
  {
    const auto rest = budget.reserve(all - 3);
    EXPECT_EQ(create(in).status(), Code::NO_RESOURCES);
  }
  EXPECT_EQ(destroy(index), Code::OK);
  EXPECT_EQ(budget.left(), all);
}

TEST_F(MemoryKeyCommandTest, TheReservedLkeyIsReported) {
  Input<s::query_special_contexts_in> in(Opcode::QUERY_SPECIAL_CONTEXTS);
  const auto reply = host.execute(in.bytes(), 16);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(util::load_be32(reply.out.data() + 0x0C), MemoryKeys::kReservedLkey);
}

TEST_F(MemoryKeyCommandTest, TheDumpFillKeyIsReportedAndIsNoKeyOfCommands) {
  using Out = s::query_special_contexts_out;
  Input<s::query_special_contexts_in> in(Opcode::QUERY_SPECIAL_CONTEXTS);
  const auto key = host.execute<Out>(in).as<Out>().get(Out::dump_fill_mkey);
  EXPECT_EQ(key, MemoryKeys::kDumpFillKey);
  EXPECT_EQ(destroy(key >> 8), Code::BAD_RESOURCE);
}

}  // namespace
}  // namespace softhca::connectx

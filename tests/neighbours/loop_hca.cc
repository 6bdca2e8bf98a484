#include "loop_hca.h"

#include <utility>

#include "driver/vfio_user_host.h"
#include "spec/connectx/mkey.h"

namespace softhca::neighbours {

using driver::connectx::QueuePair;
using driver::connectx::Request;
using spec::connectx::command_opcode;
using spec::connectx::create_mkey_in;
using spec::connectx::create_mkey_out;
using spec::connectx::klm_entry;
using spec::connectx::mkey_access_mode;
using spec::connectx::mkey_context;

namespace {

constexpr std::uint32_t kAnyQp = 0xffffff;

void allow_all(util::MutableView<mkey_context> context, std::uint32_t pd, std::uint8_t variant) {
  context.set(mkey_context::lr, 1);
  context.set(mkey_context::lw, 1);
  context.set(mkey_context::rr, 1);
  context.set(mkey_context::rw, 1);
  context.set(mkey_context::pd, pd);
  context.set(mkey_context::qpn, kAnyQp);
  context.set(mkey_context::mkey, variant);
}

}  // namespace

LoopHca::LoopHca(const std::string& socket, unsigned number, std::size_t memory)
    : LoopHca(must(driver::VfioUserHost::connect(socket, {.timeout = std::chrono::seconds(30)})),
              number, memory, {.patience = std::chrono::seconds(20)}) {}

LoopHca::LoopHca(std::unique_ptr<driver::Host> host, unsigned number, std::size_t memory,
                 const driver::connectx::Hca::Options& options)
    : host_(std::move(host)),
      hca_(must(driver::connectx::Hca::open(*host_, options))),
      gid_(driver::Gid::from_ipv4(10, 0, 0, static_cast<std::uint8_t>(number))),
      memory_(must(driver::DmaBuffer::allocate(*host_, memory))),
      pd_(must(driver::connectx::ProtectionDomain::create(*hca_))),
      cq_(must(driver::connectx::CompletionQueue::create(*hca_, {.entries = 4096}))),
      key_(must(driver::connectx::MemoryKey::all_dma_memory(
          *pd_, {.remote_read = true, .remote_write = true}))) {
  must(hca_->set_roce_address(0, {.gid = gid_, .mac = hca_->mac()}));
}

LoopHca::~LoopHca() {
  while (!keys_.empty() && !host_->lost()) {
    Request<spec::connectx::destroy_mkey_in> in(command_opcode::DESTROY_MKEY);
    in.set(spec::connectx::destroy_mkey_in::mkey_index, keys_.back() >> 8);
    (void)hca_->commands().run(in);
    keys_.pop_back();
  }
}

std::uint32_t LoopHca::make_indirect_key(std::uint64_t start, const std::vector<Piece>& pieces) {
  const auto count = static_cast<std::uint32_t>(pieces.size());
  Request<create_mkey_in> in(command_opcode::CREATE_MKEY, count * klm_entry::kSize);
  in.set(create_mkey_in::translations_octword_actual_size, count);
  const auto context = in.sub(create_mkey_in::mkey_context);
  const auto variant = hca_->next_key_variant();
  allow_all(context, pd_->pd(), variant);
  context.set(mkey_context::access_mode, static_cast<std::uint32_t>(mkey_access_mode::KLM));
  context.set(mkey_context::translations_octword_size, count);
  context.set(mkey_context::start_addr, start);
  std::uint64_t length = 0;
  auto list = in.all().subspan(create_mkey_in::klm_pas_mtt_offset);
  for (const auto& piece : pieces) {
    const util::MutableView<klm_entry> entry(list);
    entry.set(klm_entry::byte_count, piece.length);
    entry.set(klm_entry::mkey, piece.key);
    entry.set(klm_entry::address, piece.address);
    list = list.subspan(klm_entry::kSize);
    length += piece.length;
  }
  context.set(mkey_context::len, length);
  const auto out = must(hca_->commands().execute<create_mkey_out>(in));
  keys_.push_back(out.get(create_mkey_out::mkey_index) << 8 | variant);
  return keys_.back();
}

LoopPair LoopHca::make_pair(const QueuePair::Options& options,
                            const driver::connectx::Connection& connection) {
  LoopPair pair{must(QueuePair::create(*pd_, options)), must(QueuePair::create(*pd_, options))};
  must(pair.from->connect(address_of(*pair.to), connection));
  must(pair.to->connect(address_of(*pair.from), connection));
  return pair;
}

}  // namespace softhca::neighbours

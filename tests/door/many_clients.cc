// A server with a thread for each of its clients, by librdmacm and libibverbs alone.
//   many_clients server CLIENTS
//   many_clients client
// A client sends messages. The server answers each with its bytes inverted. The client also reads
// the answer from the server's memory by RDMA.
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kSize = 3000;  // of a message, three packets
constexpr int kMessages = 50;

using Buffer = std::array<std::uint8_t, kSize>;

/// The server's answers, in the private data of its acceptance.
struct Answers {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
};

void expect(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::exit(1);
}

void expect_success(int polled, const ibv_wc& completion, const char* what) {
  expect(polled == 1, what);
  if (completion.status == IBV_WC_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", what, ibv_wc_status_str(completion.status));
  std::exit(1);
}

rdma_addrinfo* address_of(const char* node) {
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  if (node == nullptr) hints.ai_flags = RAI_PASSIVE;
  rdma_addrinfo* found = nullptr;
  expect(rdma_getaddrinfo(node, "7471", &hints, &found) == 0, "rdma_getaddrinfo");
  return found;
}

rdma_cm_id* endpoint_of(rdma_addrinfo* address) {
  ibv_qp_init_attr attributes{};
  attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 4;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  attributes.sq_sig_all = 1;
  rdma_cm_id* id = nullptr;
  expect(rdma_create_ep(&id, address, nullptr, &attributes) == 0, "rdma_create_ep");
  return id;
}

void serve(rdma_cm_id* id) {
  Buffer asked{}, answer{};
  ibv_mr* const in = rdma_reg_msgs(id, asked.data(), kSize);
  ibv_mr* const out = rdma_reg_read(id, answer.data(), kSize);
  expect(in != nullptr && out != nullptr, "registration");
  expect(rdma_post_recv(id, nullptr, asked.data(), kSize, in) == 0, "rdma_post_recv");
  Answers answers{reinterpret_cast<std::uintptr_t>(answer.data()), out->rkey};
  rdma_conn_param parameters{};
  parameters.private_data = &answers;
  parameters.private_data_len = sizeof answers;
  parameters.responder_resources = 1;
  parameters.rnr_retry_count = 7;
  expect(rdma_accept(id, &parameters) == 0, "rdma_accept");
  for (int i = 0; i < kMessages; ++i) {
    ibv_wc completion{};
    expect_success(rdma_get_recv_comp(id, &completion), completion, "server's receive");
    for (std::size_t at = 0; at < kSize; ++at)
      answer[at] = static_cast<std::uint8_t>(asked[at] ^ 0xff);
    expect(rdma_post_recv(id, nullptr, asked.data(), kSize, in) == 0, "rdma_post_recv");
    expect(rdma_post_send(id, nullptr, answer.data(), kSize, out, 0) == 0, "rdma_post_send");
    expect_success(rdma_get_send_comp(id, &completion), completion, "server's send");
  }
  // The client sends once more when it has read the last answer.
  ibv_wc completion{};
  expect_success(rdma_get_recv_comp(id, &completion), completion, "server's last receive");
  rdma_disconnect(id);
  rdma_dereg_mr(in);
  rdma_dereg_mr(out);
  rdma_destroy_ep(id);
}

int server(int clients) {
  rdma_addrinfo* const address = address_of(nullptr);
  rdma_cm_id* const listener = endpoint_of(address);
  expect(rdma_listen(listener, clients) == 0, "rdma_listen");
  std::puts("listening");
  std::fflush(stdout);
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) {
    rdma_cm_id* id = nullptr;
    expect(rdma_get_request(listener, &id) == 0, "rdma_get_request");
    threads.emplace_back(serve, id);
  }
  for (auto& thread : threads) thread.join();
  rdma_destroy_ep(listener);
  rdma_freeaddrinfo(address);
  std::printf("served %d\n", clients);
  return 0;
}

int client() {
  rdma_addrinfo* const address = address_of("127.0.0.1");
  rdma_cm_id* const id = endpoint_of(address);
  Buffer question{}, answer{}, seen{};
  ibv_mr* const out = rdma_reg_msgs(id, question.data(), kSize);
  ibv_mr* const in = rdma_reg_msgs(id, answer.data(), kSize);
  ibv_mr* const read = rdma_reg_msgs(id, seen.data(), kSize);
  expect(out != nullptr && in != nullptr && read != nullptr, "registration");
  expect(rdma_post_recv(id, nullptr, answer.data(), kSize, in) == 0, "rdma_post_recv");
  rdma_conn_param parameters{};
  parameters.initiator_depth = 1;
  parameters.retry_count = parameters.rnr_retry_count = 7;
  expect(rdma_connect(id, &parameters) == 0, "rdma_connect");
  Answers answers;
  std::memcpy(&answers, id->event->param.conn.private_data, sizeof answers);
  std::mt19937 random(static_cast<unsigned>(getpid()));
  for (int i = 0; i < kMessages; ++i) {
    for (auto& byte : question) byte = static_cast<std::uint8_t>(random());
    ibv_wc completion{};
    expect(rdma_post_send(id, nullptr, question.data(), kSize, out, 0) == 0, "rdma_post_send");
    expect_success(rdma_get_send_comp(id, &completion), completion, "client's send");
    expect_success(rdma_get_recv_comp(id, &completion), completion, "client's receive");
    expect(rdma_post_read(id, nullptr, seen.data(), kSize, read, 0, answers.address,
                          answers.rkey) == 0,
           "rdma_post_read");
    expect_success(rdma_get_send_comp(id, &completion), completion, "client's read");
    expect(rdma_post_recv(id, nullptr, answer.data(), kSize, in) == 0, "rdma_post_recv");
    for (std::size_t at = 0; at < kSize; ++at) {
      const auto right = static_cast<std::uint8_t>(question[at] ^ 0xff);
      if (answer[at] == right && seen[at] == right) continue;
      std::fprintf(stderr, "message %d, byte %zu\n", i, at);
      return 1;
    }
  }
  ibv_wc completion{};
  expect(rdma_post_send(id, nullptr, question.data(), 1, out, 0) == 0, "rdma_post_send");
  expect_success(rdma_get_send_comp(id, &completion), completion, "client's last send");
  rdma_disconnect(id);
  rdma_destroy_ep(id);
  rdma_freeaddrinfo(address);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "server") return server(std::atoi(argv[2]));
  if (argc == 2 && std::string_view(argv[1]) == "client") return client();
  std::fprintf(stderr, "usage: many_clients server CLIENTS | client\n");
  return 2;
}

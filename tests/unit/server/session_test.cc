// Sessions that end in the middle of something: their callbacks come from several threads at once.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/server_coordinator.h"

namespace octavo::rpc {
namespace {

using testing_support::CallContext;
using testing_support::TestCoordinator;

// A heartbeat is read while the call is being cancelled, again and again and on many calls at once.
// The coordinator must neither end a call twice nor touch one that is gone, either of which aborts
// the process.
TEST(SessionRace, ACallThatIsCutRightBehindItsHeartbeatEndsOnce) {
  constexpr int kClients = 8;
  constexpr int kSessions = 800;
  TestCoordinator octavod;
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&octavod, client] {
      v1::SessionRequest heartbeat;
      heartbeat.mutable_worker()->set_worker_id(absl::StrCat("worker-", client));
      heartbeat.mutable_worker()->set_incarnation("00000000000000aa");
      if (client % 2 == 0) {  // its heartbeats are taken; the others' end their sessions
        v1::RegisterWorkerRequest request;
        *request.mutable_worker() = heartbeat.worker();
        request.add_devices()->set_kind("cpu");
        v1::RegisterWorkerResponse response;
        CallContext context;
        EXPECT_TRUE(octavod->workers->RegisterWorker(&context, request, &response).ok());
      }
      for (int i = 0; i < kSessions; ++i) {
        heartbeat.set_sequence(i + 1);
        CallContext context;
        const auto session = octavod->workers->Session(&context);
        session->Write(heartbeat);
        context.TryCancel();
        session->Finish();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  octavod->Submit();
  EXPECT_TRUE(octavod->status.ok()) << octavod->status.error_message();
}

}  // namespace
}  // namespace octavo::rpc

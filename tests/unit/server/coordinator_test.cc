#include "server/rpc/coordinator.h"

#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <limits>

#include "absl/synchronization/notification.h"
#include "tests/support/server_coordinator.h"

namespace octavo::rpc {
namespace {

using testing_support::CallContext;
using testing_support::SomeSpec;
using testing_support::Stubs;
using testing_support::TestCoordinator;

// Calls a method by name with the bytes of a message, since the health protocol's messages are not
// generated here.
grpc::Status CallBytes(TestCoordinator& octavod, const std::string& method,
                       const std::string& request, std::string* response) {
  grpc::GenericStub stub(octavod.coordinator().InProcessChannel());
  grpc::Slice slice(request);
  const grpc::ByteBuffer sent(&slice, 1);
  grpc::ByteBuffer received;
  CallContext context;
  absl::Notification done;
  grpc::Status status;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &sent, &received, [&](grpc::Status answer) {
    status = answer;
    done.Notify();
  });
  done.WaitForNotification();
  std::vector<grpc::Slice> slices;
  if (status.ok() && received.Dump(&slices).ok()) {
    for (const auto& part : slices)
      response->append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  return status;
}

TEST(Coordinator, SaysThatItIsHealthy) {
  TestCoordinator octavod;
  std::string response;
  ASSERT_TRUE(CallBytes(octavod, "/grpc.health.v1.Health/Check", "", &response).ok());
  EXPECT_EQ(response, "\x08\x01") << "status = SERVING";
}

TEST(Coordinator, SurvivesBytesThatAreNoMessage) {
  TestCoordinator octavod;
  for (const char* method :
       {"/octavo.v1.JobService/SubmitJob", "/octavo.v1.WorkerService/PushLogs",
        "/octavo.v1.JobService/NoSuchMethod", "/octavo.v1.NoSuchService/Call"}) {
    std::string response;
    EXPECT_FALSE(CallBytes(octavod, method, std::string(100, '\xFF'), &response).ok()) << method;
  }
  octavod->Submit();
  EXPECT_TRUE(octavod->status.ok());
}

TEST(Coordinator, RefusesAMessageBeyondItsLimit) {
  CoordinatorOptions options;
  options.message_bytes_limit = 100000;
  TestCoordinator octavod(options);
  octavod->Submit(SomeSpec(std::string(200000, 'x')));
  EXPECT_EQ(octavod->status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(Coordinator, RefusesNumbersAtTheirEdges) {
  TestCoordinator octavod;
  for (const int32_t size :
       {-1, 1001, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    octavod->List(size);
    EXPECT_EQ(octavod->status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << size;
  }
  v1::TailLogsRequest tail;
  tail.set_job_id(octavod->Submit().id());
  for (const int64_t offset :
       {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    tail.set_offset(offset);
    CallContext context;
    EXPECT_TRUE(octavod->logs->TailLogs(&context, tail)->Finish().ok()) << offset;
  }
  v1::JobSpec spec = SomeSpec();
  spec.mutable_stages(0)->mutable_batch()->set_micro_batch(std::numeric_limits<int32_t>::max());
  octavod->Submit(spec);
  EXPECT_EQ(octavod->status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace octavo::rpc

#include "octavo/v1/node.grpc.pb.h"
#include "server/rpc/checks.h"
#include "server/rpc/page_token.h"
#include "server/rpc/services.h"
#include "server/rpc/unary.h"

namespace octavo::rpc {
namespace {

constexpr int64_t kDefaultPage = 100;
constexpr int64_t kMaxPage = 1000;

// The page token holds the id of the last worker sent.
v1::ListWorkersResponse ListPage(const core::Core& core, const std::string& after, int64_t limit) {
  v1::ListWorkersResponse response;
  for (v1::Worker& worker : core.ListWorkers(after, limit + 1)) {
    if (response.workers_size() == limit) {
      response.set_next_page_token(
          MakePageToken(response.workers(response.workers_size() - 1).id(), "workers"));
      break;
    }
    *response.add_workers() = std::move(worker);
  }
  return response;
}

class NodeService final : public v1::NodeService::CallbackService {
 public:
  explicit NodeService(Shell* shell) : shell_(*shell) {}

  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override {
    auto [reactor, reply, deadline] =
        BeginUnary(shell_, "NodeService/ListWorkers", context, response);
    const absl::StatusOr<int64_t> limit =
        PageSize("page_size", request->page_size(), kDefaultPage, kMaxPage);
    const absl::StatusOr<std::string> after = ReadPageToken(request->page_token(), "workers");
    if (!limit.ok() || !after.ok()) {
      reply.Finish(limit.ok() ? after.status() : limit.status());
      return reactor;
    }
    v1::ListWorkersResponse page;
    shell_.loop->Read([&](const core::Core& core) { page = ListPage(core, *after, *limit); });
    reply.Finish(std::move(page));
    return reactor;
  }

 private:
  Shell& shell_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeNodeService(Shell* shell) {
  return std::make_unique<NodeService>(shell);
}

}  // namespace octavo::rpc

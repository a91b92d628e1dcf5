#include "server/rpc/coordinator.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "server/loop/loop_thread.h"
#include "server/rpc/services.h"
#include "server/storage/folder.h"
#include "server/storage/sqlite_store.h"
#include "server/telemetry/collector.h"

namespace octavo::rpc {
namespace {

// Open calls end on their own once the loop has stopped; what is left then is cut.
constexpr std::chrono::milliseconds kShutdownPatience{300};

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// What gRPC says for its own developers; what a user must know comes back as a status.
void RouteGrpcLog() {
  gpr_set_log_function([](gpr_log_func_args* line) { LogDebug("grpc: ", line->message); });
}

void Configure(const CoordinatorOptions& options, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(static_cast<int>(options.message_bytes_limit));
  // Two coordinators on one port would share its connections.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              Milliseconds(options.min_ping_interval));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              Milliseconds(options.keepalive_timeout));
}

class GrpcCoordinator final : public Coordinator {
 public:
  GrpcCoordinator(const CoordinatorOptions& options, const Clock* clock)
      : options_(options), clock_(clock) {}

  ~GrpcCoordinator() override {
    thread_ = nullptr;
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now() + kShutdownPatience);
      server_->Wait();
    }
  }

  absl::Status Open() {
    ASSIGN_OR_RETURN(folder_, storage::DataFolder::Open(options_.data_dir));
    const std::string path = folder_->database_path();
    ASSIGN_OR_RETURN(auto store, storage::SqliteStore::Open(
                                     {.path = path, .max_bytes = options_.store_max_bytes}));
    ASSIGN_OR_RETURN(pool_, BlockingPool::Start({.store_path = path,
                                                 .threads = options_.read_threads,
                                                 .queue_limit = options_.loop.queue_limit}));
    ASSIGN_OR_RETURN(loop_, loop::CoreLoop::Open(options_.loop, std::move(store), clock_));
    thread_ = std::make_unique<loop::LoopThread>(loop_.get());
    shell_ = std::make_unique<Shell>();
    shell_->loop = loop_.get();
    shell_->pool = pool_.get();
    shell_->clock = clock_;
    shell_->counters = &counters_;
    shell_->limits = options_.limits;
    collector_ =
        std::make_shared<telemetry::Collector>([this] { return TakeSnapshot(); }, OCTAVO_VERSION);
    return Serve();
  }

  const std::string& address() const override { return address_; }
  std::shared_ptr<grpc::Channel> InProcessChannel() override {
    return server_->InProcessChannel({});
  }
  std::shared_ptr<prometheus::Collectable> collectable() override { return collector_; }

 private:
  absl::Status Serve() {
    services_.push_back(MakeJobService(shell_.get()));
    services_.push_back(MakeMetricService(shell_.get()));
    services_.push_back(MakeLogService(shell_.get()));
    services_.push_back(MakeNodeService(shell_.get()));
    services_.push_back(MakeWorkerService(shell_.get()));
    RouteGrpcLog();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    Configure(options_, &builder);
    for (const auto& service : services_) builder.RegisterService(service.get());
    int port = 0;
    if (!options_.listen.empty()) {
      builder.AddListeningPort(options_.listen, grpc::InsecureServerCredentials(), &port);
    }
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || (port == 0 && !options_.listen.empty())) {
      return absl::UnavailableError(
          absl::StrCat("listening on ", options_.listen,
                       ": the address is in use or not of this machine; choose another --listen"));
    }
    address_ = absl::StrCat(options_.listen.substr(0, options_.listen.rfind(':')), ":", port);
    return absl::OkStatus();
  }

  telemetry::Snapshot TakeSnapshot() {
    telemetry::Snapshot snapshot = loop_->TakeSnapshot();
    snapshot.rpcs = counters_.counts();
    return snapshot;
  }

  // In the order in which they are built; they go in the opposite one.
  const CoordinatorOptions options_;
  const Clock* const clock_;
  telemetry::RpcCounters counters_;
  std::unique_ptr<storage::DataFolder> folder_;
  std::unique_ptr<BlockingPool> pool_;
  std::unique_ptr<loop::CoreLoop> loop_;
  std::unique_ptr<loop::LoopThread> thread_;
  std::unique_ptr<Shell> shell_;
  std::shared_ptr<telemetry::Collector> collector_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(const CoordinatorOptions& options,
                                                                const Clock* clock) {
  auto coordinator = std::make_unique<GrpcCoordinator>(options, clock);
  RETURN_IF_ERROR(coordinator->Open());
  return coordinator;
}

}  // namespace octavo::rpc

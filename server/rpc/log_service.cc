#include "octavo/v1/log.grpc.pb.h"
#include "server/rpc/job_stream.h"
#include "server/rpc/services.h"

namespace octavo::rpc {
namespace {

constexpr int64_t kPageBytes = 256 << 10;

class TailStream final : public JobStream<v1::LogLines> {
 public:
  TailStream(Shell& shell, const v1::TailLogsRequest& request)
      : JobStream(shell, "LogService/TailLogs", request.job_id(), absl::OkStatus()),
        follow_(request.follow()),
        offset_(request.offset()) {}

 private:
  void Pull() override {
    if (done_) return End(absl::OkStatus());
    // Read before the lines are: what is stored once the job has ended is all there will be.
    const bool ended = IsTerminal(job()->state());
    shell().pool->Post(
        [self = shared_from_this(), this, ended](absl::StatusOr<storage::StoreReader*> reader) {
          if (!reader.ok()) return End(reader.status());
          auto page =
              (*reader)->ReadLogs({.job_id = job_id(), .offset = offset_, .max_bytes = kPageBytes});
          if (!page.ok()) return End(page.status());
          offset_ = page->next_offset;
          done_ = page->at_end && (ended || !follow_);
          if (page->lines.empty()) return done_ ? End(absl::OkStatus()) : Rest();
          v1::LogLines message;
          for (v1::LogLine& line : page->lines) *message.add_lines() = std::move(line);
          Deliver(std::move(message));
        });
  }

  const bool follow_;
  // Owned by whoever pulls.
  int64_t offset_;
  bool done_ = false;
};

class LogService final : public v1::LogService::CallbackService {
 public:
  explicit LogService(Shell* shell) : shell_(*shell) {}

  grpc::ServerWriteReactor<v1::LogLines>* TailLogs(grpc::CallbackServerContext*,
                                                   const v1::TailLogsRequest* request) override {
    auto stream = std::make_shared<TailStream>(shell_, *request);
    return stream->Launch(stream);
  }

 private:
  Shell& shell_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeLogService(Shell* shell) {
  return std::make_unique<LogService>(shell);
}

}  // namespace octavo::rpc

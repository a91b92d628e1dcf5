#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "octavo/v1/job.grpc.pb.h"
#include "proto/support/job_spec.h"
#include "server/rpc/admission.h"
#include "server/rpc/job_stream.h"
#include "server/rpc/page_token.h"
#include "server/rpc/services.h"
#include "server/rpc/validation.h"

namespace octavo::rpc {
namespace {

constexpr int64_t kDefaultPage = 50;
constexpr int64_t kMaxPage = 1000;
// A page stops early at this size: gRPC clients take messages of 4 MiB.
constexpr size_t kPageBytes = 3 << 20;

class WatchStream final : public JobStream<v1::Job> {
 public:
  WatchStream(Shell& shell, const v1::WatchJobRequest& request)
      : JobStream(shell, "JobService/WatchJob", request.job_id(), absl::OkStatus()) {}

 private:
  // Changes that come while a message is under way are sent as one: the newest job. Why it waits
  // may change within a version.
  void Pull() override {
    const std::shared_ptr<const v1::Job> newest = job();
    if (newest->version() > sent_version_ || newest->pending_reason() != sent_reason_) {
      sent_version_ = newest->version();
      sent_reason_ = newest->pending_reason();
      Deliver(*newest);
    } else {
      IsTerminal(newest->state()) ? End(absl::OkStatus()) : Rest();
    }
  }

  // Owned by whoever pulls.
  int64_t sent_version_ = -1;
  std::string sent_reason_;
};

struct JobFilter {
  std::vector<v1::JobState> states;

  // Equal for equal sets of states.
  std::string Key() const { return absl::StrCat("jobs ", absl::StrJoin(states, ",")); }
};

absl::StatusOr<JobFilter> MakeFilter(const v1::ListJobsRequest& request) {
  JobFilter filter;
  for (const int state : request.states()) {
    if (!v1::JobState_IsValid(state) || state == v1::JOB_STATE_UNSPECIFIED) {
      return absl::InvalidArgumentError(
          absl::StrCat("states: ", state, " is not a state of a job"));
    }
    filter.states.push_back(static_cast<v1::JobState>(state));
  }
  std::sort(filter.states.begin(), filter.states.end());
  filter.states.erase(std::unique(filter.states.begin(), filter.states.end()), filter.states.end());
  return filter;
}

// The order of the last job that was sent; 0 at the start.
absl::StatusOr<int64_t> ReadPosition(const std::string& page_token, const JobFilter& filter) {
  ASSIGN_OR_RETURN(const std::string position, ReadPageToken(page_token, filter.Key()));
  int64_t order = 0;
  if (position.empty() || (absl::SimpleAtoi(position, &order) && order > 0)) return order;
  return absl::InvalidArgumentError("page_token: it is not a token of this service");
}

v1::ListJobsResponse ListPage(const core::Core& core, int64_t before, int64_t limit,
                              const JobFilter& filter) {
  v1::ListJobsResponse response;
  size_t bytes = 0;
  int64_t last = 0;
  for (const core::JobPointer& record : core.jobs().List(before, limit + 1, filter.states)) {
    bytes += record->job.ByteSizeLong();
    const bool full = response.jobs_size() == limit || bytes > kPageBytes;
    if (full && response.jobs_size() > 0) {
      response.set_next_page_token(MakePageToken(absl::StrCat(last), filter.Key()));
      break;
    }
    *response.add_jobs() = core.Describe(*record);
    last = record->order;
  }
  return response;
}

// On the loop's thread: the baseline is looked up and the id chosen where no other request can come
// between.
absl::StatusOr<core::Request> MakeSubmit(const loop::CoreLoop::Context& context,
                                         core::SubmitJob submit) {
  if (auto violations = CheckBaseline(submit.request.spec(), context.core); !violations.empty()) {
    return ViolationsStatus(violations);
  }
  do {
    submit.job_id = NewJobId();
  } while (context.core.HasJob(submit.job_id));
  return submit;
}

class JobService final : public v1::JobService::CallbackService {
 public:
  explicit JobService(Shell* shell) : shell_(*shell) {}

  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                      const v1::SubmitJobRequest* request,
                                      v1::Job* response) override {
    auto [reactor, reply, deadline] = BeginUnary(shell_, "JobService/SubmitJob", context, response);
    core::SubmitJob submit;
    submit.request = *request;
    absl::Status check = CheckRequestId(request->request_id());
    if (check.ok()) {
      const auto violations = CompleteSpec(submit.request.mutable_spec());
      if (!violations.empty()) check = ViolationsStatus(violations);
    }
    if (!check.ok()) {
      reply.Finish(check);
      return reactor;
    }
    submit.spec_sha256 = JobSpecSha256(submit.request.spec());
    shell_.pool->Post(
        [loop = shell_.loop, submit = std::move(submit), deadline = deadline,
         reply = std::move(reply)](absl::StatusOr<storage::StoreReader*> reader) mutable {
          if (!reader.ok()) return reply.Finish(reader.status());
          submit.memory_bytes = EstimateJobMemory(submit.request.spec());
          const loop::CoreLoop::Cost cost = {
              .deadline = deadline, .bytes = static_cast<int64_t>(submit.request.ByteSizeLong())};
          loop->Decide(
              [submit = std::move(submit)](loop::CoreLoop::Context& state) mutable {
                return MakeSubmit(state, std::move(submit));
              },
              cost, Answering(std::move(reply)));
        });
    return reactor;
  }

  grpc::ServerUnaryReactor* ValidateJob(grpc::CallbackServerContext* context,
                                        const v1::ValidateJobRequest* request,
                                        v1::ValidateJobResponse* response) override {
    auto [reactor, reply, deadline] =
        BeginUnary(shell_, "JobService/ValidateJob", context, response);
    Validate(shell_, request->spec(), deadline, std::move(reply));
    return reactor;
  }

  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request, v1::Job* response) override {
    auto [reactor, reply, deadline] = BeginUnary(shell_, "JobService/GetJob", context, response);
    if (absl::Status check = CheckJobId(request->job_id()); !check.ok()) {
      reply.Finish(check);
      return reactor;
    }
    absl::StatusOr<v1::Job> job = NoSuchJob(request->job_id());
    shell_.loop->Read([&](const core::Core& core) {
      const core::JobPointer record = core.jobs().Find(request->job_id());
      if (record != nullptr) job = core.Describe(*record);
    });
    reply.Finish(std::move(job));
    return reactor;
  }

  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override {
    auto [reactor, reply, deadline] = BeginUnary(shell_, "JobService/ListJobs", context, response);
    const absl::StatusOr<JobFilter> filter = MakeFilter(*request);
    const absl::StatusOr<int64_t> limit =
        PageSize("page_size", request->page_size(), kDefaultPage, kMaxPage);
    absl::Status check = filter.ok() ? limit.status() : filter.status();
    absl::StatusOr<int64_t> before = 0;
    if (check.ok()) {
      before = ReadPosition(request->page_token(), *filter);
      check = before.status();
    }
    if (!check.ok()) {
      reply.Finish(check);
      return reactor;
    }
    v1::ListJobsResponse page;
    shell_.loop->Read(
        [&](const core::Core& core) { page = ListPage(core, *before, *limit, *filter); });
    reply.Finish(std::move(page));
    return reactor;
  }

  grpc::ServerWriteReactor<v1::Job>* WatchJob(grpc::CallbackServerContext*,
                                              const v1::WatchJobRequest* request) override {
    auto stream = std::make_shared<WatchStream>(shell_, *request);
    return stream->Launch(stream);
  }

  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::Job* response) override {
    return ForwardFact(shell_, "JobService/CancelJob", context, *request, response,
                       CheckJobId(request->job_id()), core::CancelJob{request->job_id()});
  }

 private:
  Shell& shell_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeJobService(Shell* shell) {
  return std::make_unique<JobService>(shell);
}

}  // namespace octavo::rpc

// Glue between gRPC's unary calls and Reply.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <utility>
#include <variant>

#include "base/reply.h"
#include "server/rpc/admission.h"
#include "server/rpc/shell.h"

namespace octavo::rpc {

// absl's codes are gRPC's. Never OK for an error, whose message is cut to what fits into response
// headers.
grpc::Status ToGrpc(const absl::Status& status);

// Time left to a call on `clock`'s monotonic axis, clamped to `limit`.
absl::Duration Deadline(const grpc::CallbackServerContext& context, const Clock& clock,
                        absl::Duration limit);

template <typename Response>
struct Unary {
  grpc::ServerUnaryReactor* reactor;
  Reply<Response> reply;
  absl::Duration deadline;
};

// The handler returns `reactor` and answers `reply` from any thread; gRPC keeps `context` and
// `response` alive until then.
template <typename Response>
Unary<Response> BeginUnary(Shell& shell, const char* method, grpc::CallbackServerContext* context,
                           Response* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Reply<Response> reply(
      [&shell, method, context, response, reactor](absl::StatusOr<Response> result) {
        shell.counters->Count(method, result.status().code());
        if (result.ok()) {
          *response = *std::move(result);
        } else if (const auto violations = result.status().GetPayload(kViolationsKey)) {
          context->AddTrailingMetadata(kViolationsKey, std::string(*violations));
        }
        reactor->Finish(ToGrpc(result.status()));
      });
  return {reactor, std::move(reply), Deadline(*context, *shell.clock, shell.limits.unary_timeout)};
}

// The core's answer as the response of a call: the message itself, or an empty one where the core
// only says OK.
template <typename Response>
loop::CoreLoop::Answered Answering(Reply<Response> reply) {
  return loop::CoreLoop::Answered(
      [reply = std::move(reply)](absl::StatusOr<core::AnswerBody> body) mutable {
        if (!body.ok()) return reply.Finish(body.status());
        if constexpr (std::is_constructible_v<core::AnswerBody, Response>) {
          if (auto* message = std::get_if<Response>(&*body)) reply.Finish(std::move(*message));
        } else {
          reply.Finish(Response());
        }
      });
}

// Checks a request and hands it to the core as an event.
template <typename Request, typename Response, typename Event>
grpc::ServerUnaryReactor* ForwardFact(Shell& shell, const char* method,
                                      grpc::CallbackServerContext* context, const Request& request,
                                      Response* response, const absl::Status& check, Event event) {
  auto [reactor, reply, deadline] = BeginUnary(shell, method, context, response);
  if (!check.ok()) {
    reply.Finish(check);
    return reactor;
  }
  const loop::CoreLoop::Cost cost = {.deadline = deadline,
                                     .bytes = static_cast<int64_t>(request.ByteSizeLong())};
  if constexpr (std::is_constructible_v<core::Observation, Event>) {
    shell.loop->Observe(core::Observation(std::move(event)), cost,
                        Answering<Response>(std::move(reply)));
  } else {
    shell.loop->Decide(core::Request(std::move(event)), cost,
                       Answering<Response>(std::move(reply)));
  }
  return reactor;
}

}  // namespace octavo::rpc

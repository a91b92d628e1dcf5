#include "server/rpc/unary.h"

#include <algorithm>

namespace octavo::rpc {
namespace {

// Of the 8 KiB that response headers may have; the rest is for details.
constexpr size_t kMaxMessageBytes = 3072;

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message().substr(0, kMaxMessageBytes)));
}

absl::Duration Deadline(const grpc::CallbackServerContext& context, const Clock& clock,
                        absl::Duration limit) {
  const absl::Duration left = absl::FromChrono(context.deadline()) - clock.Now();
  return clock.Monotonic() + std::min(left, limit);
}

}  // namespace octavo::rpc

// The services of proto/octavo/v1. Each checks, posts to the core and answers; none decides.
// `shell` outlives them.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "server/rpc/shell.h"

namespace octavo::rpc {

std::unique_ptr<grpc::Service> MakeJobService(Shell* shell);
std::unique_ptr<grpc::Service> MakeMetricService(Shell* shell);
std::unique_ptr<grpc::Service> MakeLogService(Shell* shell);
std::unique_ptr<grpc::Service> MakeNodeService(Shell* shell);
std::unique_ptr<grpc::Service> MakeWorkerService(Shell* shell);

}  // namespace octavo::rpc

// One open Session stream of a worker.
#pragma once

#include <grpcpp/grpcpp.h>

#include "octavo/v1/worker.grpc.pb.h"
#include "server/rpc/shell.h"

namespace octavo::rpc {

// Owns itself until gRPC is done with it.
grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* StartSession(Shell& shell);

}  // namespace octavo::rpc

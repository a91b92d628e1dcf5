// The program `octavo` as a function of its arguments and its surroundings.
#pragma once

#include <grpcpp/channel.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connection.h"
#include "client/exit_code.h"
#include "client/render/terminal.h"

namespace octavo::client {

struct Environment {
  Terminal terminal;
  GetEnv get_env;
  std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>(const std::string& server)> connect =
      Connect;
  // Whether the user has pressed Ctrl-C; asked a few times a second by commands that wait.
  std::function<bool()> interrupted = [] { return false; };
  std::string version;
};

// `arguments` without the program's name.
ExitCode RunClient(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace octavo::client

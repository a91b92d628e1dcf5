#include "client/commands/command.h"

#include "base/status.h"

namespace octavo::client {

absl::StatusOr<Client*> Context::client() {
  if (client_ == nullptr) {
    ASSIGN_OR_RETURN(const std::string server, ChooseServer(options_.server, environment_.get_env));
    ASSIGN_OR_RETURN(auto channel, environment_.connect(server));
    client_ = std::make_unique<Client>(
        std::move(channel),
        Client::Options{.server = server, .timeout = absl::Seconds(options_.timeout_seconds)});
  }
  return client_.get();
}

}  // namespace octavo::client

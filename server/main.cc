// octavod: the coordinator. See server/README.md.
#include <prometheus/exposer.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "server/config/config.h"

namespace octavo {
namespace {

// Held back in every thread, so that Wait takes them.
sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // A client that goes away and a file-size limit are errors of one call, not the end of the
  // process.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  return signals;
}

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

void WarnAboutReach(const std::string& listen) {
  const std::string host = HostOf(listen);
  if (absl::StartsWith(host, "127.") || host == "localhost" || host == "[::1]") return;
  LogWarning("listening on ", listen,
             ", which other machines can reach, without TLS and authentication: whoever reaches it "
             "controls every job");
}

// Null for an empty address.
absl::StatusOr<std::unique_ptr<prometheus::Exposer>> Expose(const std::string& listen,
                                                            std::string* address) {
  if (listen.empty()) return nullptr;
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(listen, 1);
    *address = absl::StrCat(HostOf(listen), ":", exposer->GetListeningPorts().at(0));
    return exposer;
  } catch (const std::exception&) {  // its text names no address and no cause
    return absl::UnavailableError(
        absl::StrCat("listening on ", listen,
                     " for metrics: the address is in use or not of this machine; choose another "
                     "--metrics-listen"));
  }
}

absl::Status Run(const config::Config& config) {
  SetLogLevel(config.log_level);
  const sigset_t signals = BlockStopSignals();
  SystemClock clock;
  ASSIGN_OR_RETURN(const auto coordinator, rpc::Coordinator::Start(config.coordinator, &clock));
  const std::string addresses_path = config.coordinator.data_dir + "/addresses.json";
  unlink(addresses_path.c_str());  // a former process's
  std::string metrics_address;
  ASSIGN_OR_RETURN(const auto exposer, Expose(config.metrics_listen, &metrics_address));
  if (exposer != nullptr) exposer->RegisterCollectable(coordinator->collectable());
  const nlohmann::json addresses = {{"grpc", coordinator->address()}, {"metrics", metrics_address}};
  RETURN_IF_ERROR(WriteFileAtomically(addresses_path, addresses.dump(2) + "\n"));
  WarnAboutReach(config.coordinator.listen);
  LogInfo("octavod " OCTAVO_VERSION " listens on ", coordinator->address(),
          metrics_address.empty()
              ? ""
              : absl::StrCat(", metrics on http://", metrics_address, "/metrics"));
  int received = 0;
  sigwait(&signals, &received);
  LogInfo("stopping on signal ", received);
  unlink(addresses_path.c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  const auto arguments = octavo::config::ParseArguments(argc, argv, OCTAVO_VERSION);
  if (!arguments.run) {
    std::fputs(arguments.output.c_str(), arguments.exit_code == 0 ? stdout : stderr);
    return arguments.exit_code;
  }
  const absl::Status status = octavo::Run(arguments.config);
  if (status.ok()) return 0;
  octavo::LogError("octavod cannot run: ", status.message());
  return 1;
}

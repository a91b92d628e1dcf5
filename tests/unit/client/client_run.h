// Runs the program in this process and keeps what it wrote.
#pragma once

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/run_client.h"
#include "tests/unit/client/fake_coordinator.h"

namespace octavo::client {

struct ClientRun {
  ExitCode code = ExitCode::kInternal;
  std::string out;
  std::string error;
};

// Without a coordinator, every connection fails as a closed port does.
inline Environment BareEnvironment() {
  Environment environment;
  environment.get_env = [](const char*) -> const char* { return nullptr; };
  environment.connect = [](const std::string& server) { return Unreachable(server, "test"); };
  environment.version = "1.2.3";
  return environment;
}

inline Environment EnvironmentOf(FakeCoordinator* coordinator) {
  Environment environment = BareEnvironment();
  environment.connect = [coordinator](const std::string&) { return coordinator->Channel(); };
  return environment;
}

inline ClientRun RunOctavo(Environment environment, const std::vector<std::string>& arguments) {
  std::ostringstream out;
  std::ostringstream error;
  environment.terminal.out = &out;
  environment.terminal.error = &error;
  ClientRun run;
  run.code = RunClient(arguments, environment);
  run.out = out.str();
  run.error = error.str();
  return run;
}

}  // namespace octavo::client

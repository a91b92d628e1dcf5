// Flags and configuration file of octavod. A key of the YAML file is a flag's name without dashes
// in front; flags win over the file.
#pragma once

#include <string>

#include "base/log.h"
#include "server/rpc/coordinator.h"

namespace octavo::config {

struct Config {
  rpc::CoordinatorOptions coordinator;
  std::string metrics_listen = "127.0.0.1:7071";  // empty: no metrics
  LogLevel log_level = LogLevel::kInfo;
};

struct ParsedArguments {
  bool run = false;    // false: print `output` and exit with `exit_code`
  int exit_code = 0;   // 2 for arguments that are wrong
  std::string output;  // to standard output, or to standard error when exit_code is not 0
  Config config;
};

ParsedArguments ParseArguments(int argc, const char* const* argv, const std::string& version);

}  // namespace octavo::config

// The verbs of the program, each in the file of its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/commands/command.h"

namespace octavo::client {

struct JobFile {
  std::string path;
  std::vector<std::string> overrides;  // of --set, "path=value"
};

struct SubmitOptions {
  JobFile file;
  bool watch = false;
  bool skip_validation = false;
};
Outcome Submit(Context& context, const SubmitOptions& options);

Outcome Validate(Context& context, const JobFile& file);

struct JobsOptions {
  std::vector<std::string> states;  // lower case, without prefix; empty: all
  int limit = 50;
};
Outcome Jobs(Context& context, const JobsOptions& options);

// `job`: an id or "latest", here and below.
Outcome Show(Context& context, const std::string& job);
Outcome Watch(Context& context, const std::string& job);
Outcome Cancel(Context& context, const std::string& job);

struct LogsOptions {
  std::string job;
  bool follow = false;
  int64_t offset = 0;
  std::optional<int64_t> tail;  // lines before the end, instead of offset
};
Outcome Logs(Context& context, const LogsOptions& options);

struct MetricsOptions {
  std::string job;
  std::vector<std::string> names;  // empty: all
  bool follow = false;
  int64_t last = 20;  // steps that are shown as text; 0: all
};
Outcome Metrics(Context& context, const MetricsOptions& options);

struct CompareOptions {
  std::string first;
  std::string second;
};
Outcome Compare(Context& context, const CompareOptions& options);

Outcome Workers(Context& context);

struct ExampleOptions {
  std::string task;  // a name of Tasks()
  std::string folder;
  uint64_t seed = 1;
};
Outcome Example(Context& context, const ExampleOptions& options);

}  // namespace octavo::client

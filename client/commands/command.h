// What every command is given, and what it gives back.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/run_client.h"

namespace octavo::client {

enum class Format { kText, kJson };

// The outcome of a command: an exit code, or an error that the caller prints.
using Outcome = absl::StatusOr<ExitCode>;

class Context {
 public:
  struct Options {
    std::string server;  // empty: as ChooseServer finds it
    double timeout_seconds = 10;
    double patience_seconds = 300;
    Format format = Format::kText;
  };
  Context(const Environment& environment, Options options)
      : environment_(environment), options_(std::move(options)) {}

  const Environment& environment() const { return environment_; }
  const Terminal& terminal() const { return environment_.terminal; }
  std::ostream& out() const { return *environment_.terminal.out; }
  std::ostream& error() const { return *environment_.terminal.error; }
  bool json() const { return options_.format == Format::kJson; }
  // How long a stream waits for a coordinator that went away.
  absl::Duration patience() const { return absl::Seconds(options_.patience_seconds); }

  // Connects at the first call, so that a command can look at its files before.
  absl::StatusOr<Client*> client();

 private:
  const Environment& environment_;
  const Options options_;
  std::unique_ptr<Client> client_;
};

}  // namespace octavo::client

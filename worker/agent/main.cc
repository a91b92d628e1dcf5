// octavo-worker: offers the devices of this machine to a coordinator.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/clock.h"
#include "base/command_line.h"
#include "base/log.h"
#include "worker/agent/agent.h"
#include "worker/agent/config.h"
#include "worker/agent/devices.h"
#include "worker/agent/yaml_flags.h"

namespace {

using octavo::agent::Config;

constexpr timespec kTick = {.tv_sec = 0, .tv_nsec = 100'000'000};

// Lets CLI11 read its configuration file as YAML.
class YamlConfig final : public CLI::Config {
 public:
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return ""; }
  std::vector<CLI::ConfigItem> from_config(std::istream& in) const override {
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto flags = octavo::agent::ParseYamlFlags(text);
    if (!flags.ok()) throw CLI::ConversionError(std::string(flags.status().message()));
    std::vector<CLI::ConfigItem> read;
    for (const octavo::agent::Flag& flag : *flags) {
      CLI::ConfigItem& item = read.emplace_back();
      item.name = flag.name;
      item.inputs = flag.values;
    }
    return read;
  }
};

void AddOptions(CLI::App* app, Config* config) {
  app->set_version_flag("--version", "octavo-worker " OCTAVO_VERSION);
  app->config_formatter(std::make_shared<YamlConfig>());
  app->set_config("--config", "", "YAML file with the options below, by the same names");
  app->allow_config_extras(CLI::config_extras_mode::error);
  app->add_option("--server", config->server, "address of octavod")
      ->check([](const std::string& server) {
        return octavo::IsAddress(server)
                   ? std::string()
                   : absl::StrCat("\"", server, "\" is no address; write HOST:PORT");
      })
      ->envname("OCTAVO_SERVER")
      ->capture_default_str();
  app->add_option("--worker-id", config->worker_id,
                  "unique name of this worker; default: the last one used in the work folder, else "
                  "the host name");
  app->add_option("--work-dir", config->work_dir,
                  "folder of this agent, which makes it private; default: " +
                      octavo::agent::DefaultWorkFolder());
  app->add_option("--trainer", config->trainer,
                  "octavo-trainer program; default: the one beside this program");
  app->add_option("--cpu-devices", config->cpu_devices, "jobs that run on the CPU at a time")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  app->add_option("--memory", config->memory_bytes,
                  "memory of one CPU device, e.g. 8GiB; default: an equal share of the machine's")
      ->transform(CLI::AsSizeValue(false));
  app->add_option("--threads", config->threads,
                  "threads of one trainer; default: an equal share of the cores")
      ->check(CLI::Range(0, 4096));
}

// Asked for in whole seconds, kept as a duration.
void AddStopGrace(CLI::App* app, Config* config) {
  app->add_option_function<int>(
         "--stop-grace", [config](int seconds) { config->stop_grace = absl::Seconds(seconds); },
         "seconds from SIGTERM to SIGKILL of a trainer, which saves a checkpoint where it fits in; "
         "default: 5")
      ->check(CLI::Range(0, 3600));
}

void AddOutOfContactLimit(CLI::App* app, Config* config) {
  app->add_option_function<std::string>(
      "--out-of-contact-limit",
      [config](const std::string& text) {
        absl::Duration limit;
        if (!absl::ParseDuration(text, &limit) || limit < absl::ZeroDuration()) {
          throw CLI::ValidationError(
              "--out-of-contact-limit",
              absl::StrCat("\"", text,
                           "\" is no duration; write e.g. 90m, 24h, or 0 for no limit"));
        }
        config->out_of_contact_limit = limit;
      },
      "how long trainers go on without a word from octavod before they save a checkpoint and stop, "
      "e.g. 90m; 0: no limit; default: 24h");
}

int Fail(const absl::Status& status) {
  octavo::LogError(status.message());
  return 1;
}

// Serves until a signal, which stays blocked in every thread, or until the coordinator rejects us.
int Serve(octavo::agent::Agent* agent, const sigset_t& signals) {
  while (agent->status().ok()) {
    const int signal = sigtimedwait(&signals, nullptr, &kTick);
    if (signal > 0) {
      octavo::LogInfo("shuts down on signal ", signal);
      agent->Shutdown();
      return 0;
    }
    agent->Tick();
  }
  const absl::Status status = agent->status();
  agent->Shutdown();
  return Fail(status);
}

int Run(Config config) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread starts
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_CHILD_SUBREAPER, 1);

  if (config.work_dir.empty()) config.work_dir = octavo::agent::DefaultWorkFolder();
  if (config.trainer.empty()) {
    config.trainer =
        (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "octavo-trainer").string();
  }
  const auto folder = octavo::agent::WorkFolder::Open(config.work_dir);
  if (!folder.ok()) return Fail(folder.status());
  const auto worker_id = folder->WorkerId(config.worker_id);
  if (!worker_id.ok()) return Fail(worker_id.status());
  config.worker_id = *worker_id;
  const octavo::SystemClock clock;
  auto devices = octavo::agent::FindDevices(config, clock);
  if (!devices.ok()) return Fail(devices.status());
  for (const octavo::v1::Device& device : *devices) {
    octavo::LogInfo("offers ", device.kind(), " ", device.index(), ": ", device.name(), ", ",
                    device.memory_bytes() >> 20, " MiB");
  }
  octavo::agent::Agent agent({.config = config,
                              .socket_folder = folder->socket_folder(),
                              .devices = *std::move(devices),
                              .version = OCTAVO_VERSION,
                              .clock = &clock});
  octavo::LogInfo("worker ", config.worker_id, " serves the coordinator at ", config.server);
  return Serve(&agent, signals);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs training jobs of an Octavo coordinator on this machine.", "octavo-worker");
  Config config;
  AddOptions(&app, &config);
  AddStopGrace(&app, &config);
  AddOutOfContactLimit(&app, &config);
  int exit_code = 0;
  if (!octavo::ParseCommandLine(&app, argc, argv, &exit_code)) return exit_code;
  return Run(std::move(config));
}

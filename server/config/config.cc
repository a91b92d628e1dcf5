#include "server/config/config.h"

#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/command_line.h"

namespace octavo::config {
namespace {

// The configuration file as CLI11 wants it: one item per key of a flat YAML map.
class YamlConfig final : public CLI::Config {
 public:
  std::string to_config(const CLI::App* app, bool, bool, std::string) const override {
    YAML::Emitter out;
    out << YAML::BeginMap;
    for (const CLI::Option* option : app->get_options()) {
      if (!option->get_configurable()) continue;
      const std::string value =
          option->count() > 0 ? option->as<std::string>() : option->get_default_str();
      out << YAML::Key << option->get_single_name() << YAML::Value << value;
    }
    out << YAML::EndMap;
    return out.c_str();
  }

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> entries;
    YAML::Node file;
    try {
      file = YAML::Load(input);
    } catch (const YAML::Exception& error) {
      throw CLI::ConfigError(absl::StrCat("configuration file: ", error.what()));
    }
    if (file.IsNull()) return entries;
    if (!file.IsMap())
      throw CLI::ConfigError("configuration file: it is not a map of flags to values");
    for (const auto& entry : file) {
      if (!entry.first.IsScalar() || !entry.second.IsScalar()) {
        throw CLI::ConfigError("configuration file: every entry is `flag: value`, without nesting");
      }
      CLI::ConfigItem& item = entries.emplace_back();
      item.name = entry.first.Scalar();
      item.inputs = {entry.second.Scalar()};
    }
    return entries;
  }
};

// Declares flags with their present values as defaults. A repeated flag counts as its last mention.
class Flags {
 public:
  explicit Flags(CLI::App* app) : app_(*app) {}

  void Text(const std::string& name, std::string* value, const std::string& help) {
    app_.add_option(name, *value, help)->capture_default_str()->take_last();
  }

  template <typename Integer>
  void Number(const std::string& name, Integer* value, std::pair<int64_t, int64_t> range,
              const std::string& help) {
    app_.add_option(name, *value, help)
        ->capture_default_str()
        ->take_last()
        ->check(CLI::Range(range.first, range.second));
  }

  void Level(const std::string& name, LogLevel* value, const std::string& help) {
    const std::map<std::string, LogLevel> levels = {{"debug", LogLevel::kDebug},
                                                    {"info", LogLevel::kInfo},
                                                    {"warning", LogLevel::kWarning},
                                                    {"error", LogLevel::kError}};
    app_.add_option_function<std::string>(
            name, [levels, value](const std::string& text) { *value = levels.at(text); }, help)
        ->default_str("info")
        ->take_last()
        ->check(CLI::IsMember(levels));
  }

  // "1500ms", "1s", "2m": a positive length of time.
  void Duration(const std::string& name, absl::Duration* value, const std::string& help) {
    app_.add_option_function<std::string>(
            name,
            [name, value](const std::string& text) {
              absl::Duration parsed;
              if (!absl::ParseDuration(text, &parsed) || parsed <= absl::ZeroDuration() ||
                  parsed > absl::Hours(24 * 365)) {
                throw CLI::ValidationError(
                    name,
                    absl::StrCat("\"", text,
                                 "\" is not a positive length of time such as 500ms, 1s or 2m"));
              }
              *value = parsed;
            },
            help)
        ->default_str(absl::FormatDuration(*value))
        ->take_last()
        ->type_name("DURATION");
  }

 private:
  CLI::App& app_;
};

constexpr std::pair<int64_t, int64_t> kCount = {1, 100000000};
constexpr std::pair<int64_t, int64_t> kBytes = {0, std::numeric_limits<int64_t>::max()};

void AddServerFlags(Flags& flags, Config* config) {
  rpc::CoordinatorOptions& options = config->coordinator;
  flags.Text("--data-dir", &options.data_dir,
             "Folder of the coordinator's state, on a local disk; created when missing");
  flags.Text(
      "--listen", &options.listen,
      "Host and port of gRPC; port 0 chooses a free one, see addresses.json in the data folder");
  flags.Text("--metrics-listen", &config->metrics_listen,
             "Host and port of Prometheus' /metrics; empty: none");
  flags.Level("--log-level", &config->log_level, "Messages below it are not written");
  flags.Number("--store-max-bytes", &options.store_max_bytes, kBytes,
               "The database grows no further; 0: as far as the disk goes");
  flags.Number("--read-threads", &options.read_threads, {1, 64},
               "Threads that read metrics, logs and model folders");
  flags.Number("--message-bytes-limit", &options.message_bytes_limit, {65536, 1 << 30},
               "Largest gRPC message that is accepted");
  flags.Duration("--min-ping-interval", &options.min_ping_interval,
                 "Clients that send HTTP/2 pings faster are cut off");
  flags.Duration("--keepalive", &options.keepalive, "A connection silent for so long is pinged");
  flags.Duration("--keepalive-timeout", &options.keepalive_timeout,
                 "And closed after so long without an answer");
  flags.Duration("--unary-timeout", &options.limits.unary_timeout,
                 "Longest deadline of a call; longer ones count as this");
  flags.Duration("--inspection-timeout", &options.limits.inspection_timeout,
                 "How long ValidateJob waits for a worker");
  flags.Number("--stream-limit", &options.limits.stream_limit, kCount,
               "Open watch, metric and log streams together");
  flags.Number("--session-queue-limit", &options.limits.session_queue_limit, kCount,
               "Messages that wait for a worker to read them");
}

void AddCoreFlags(Flags& flags, loop::CoreLoopOptions* loop) {
  flags.Duration("--heartbeat", &loop->core.heartbeat, "How often a worker reports");
  flags.Duration("--lease", &loop->core.lease, "How long an attempt may run without being renewed");
  flags.Duration("--lease-margin", &loop->core.lease_margin,
                 "A worker stops its trainer this long before its lease lapses");
  flags.Duration("--regrant-margin", &loop->core.regrant_margin,
                 "The job is placed again this long after its lease lapsed");
  flags.Duration("--unreachable-after", &loop->core.unreachable_after,
                 "Silence after which a worker shows as unreachable");
  flags.Duration("--retry-backoff", &loop->core.retry_backoff,
                 "Wait before the first restart; doubles up to a minute");
  flags.Number("--missing-heartbeats", &loop->core.missing_heartbeats, {1, 1000},
               "An attempt that so many heartbeats in a row do not list has crashed");
  flags.Number("--max-pending-jobs", &loop->core.max_pending_jobs, kCount,
               "Jobs that wait for a worker");
  flags.Number("--max-workers", &loop->core.max_workers, kCount, "Workers that are known");
  flags.Number("--max-log-bytes-per-job", &loop->core.max_log_bytes_per_job, kBytes,
               "Log text that is kept; later lines are dropped");
  flags.Duration("--tick", &loop->tick, "How often leases are checked and jobs placed");
  flags.Duration("--series-retention", &loop->series_retention,
                 "How long an ended job stays in /metrics");
  flags.Number("--queue-limit", &loop->queue_limit, kCount,
               "Requests that wait for the event loop");
  flags.Number("--queue-bytes-limit", &loop->queue_bytes_limit, kBytes, "Their size together");
  flags.Number("--batch-limit", &loop->batch_limit, kCount, "Requests that share one transaction");
  flags.Number("--inspection-limit", &loop->inspection_limit, kCount,
               "Inspections under way at once");
}

std::string CheckTogether(const Config& config) {
  if (!IsAddress(config.coordinator.listen)) {
    return absl::StrCat("--listen \"", config.coordinator.listen, "\" is not host:port");
  }
  if (!config.metrics_listen.empty() && !IsAddress(config.metrics_listen)) {
    return absl::StrCat("--metrics-listen \"", config.metrics_listen, "\" is not host:port");
  }
  const loop::CoreLoopOptions& loop = config.coordinator.loop;
  const core::Settings& core = loop.core;
  if (core.lease_margin >= core.lease) return "--lease-margin must be shorter than --lease";
  // The rule of core::Settings: clocks may run a tenth fast or slow.
  if ((core.lease - core.lease_margin) / 0.9 >= (core.lease + core.regrant_margin) / 1.1) {
    return "--lease-margin and --regrant-margin are too short for this --lease: two workers whose "
           "clocks run a tenth apart could hold one job; lengthen either";
  }
  if (core.heartbeat >= core.lease - core.lease_margin)
    return "--heartbeat must be shorter than --lease less --lease-margin";
  if (core.unreachable_after <= core.heartbeat)
    return "--unreachable-after must be longer than --heartbeat";
  if (loop.tick > core.heartbeat) return "--tick must not be longer than --heartbeat";
  return "";
}

}  // namespace

ParsedArguments ParseArguments(int argc, const char* const* argv, const std::string& version) {
  ParsedArguments result;
  bool print_config = false;
  CLI::App app(
      "The coordinator of Octavo: queues training jobs, places them on workers and keeps what they "
      "report.",
      "octavod");
  app.set_version_flag("--version", "octavod " + version)->configurable(false);
  app.get_help_ptr()->configurable(false);
  app.set_config("--config", "", "YAML file with any of these flags as keys")->configurable(false);
  app.config_formatter(std::make_shared<YamlConfig>());
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.add_flag("--print-config", print_config, "Print the resolved configuration as YAML and exit")
      ->configurable(false);
  Flags flags(&app);
  AddServerFlags(flags, &result.config);
  AddCoreFlags(flags, &result.config.coordinator.loop);
  try {
    app.parse(argc, argv);
    if (result.config.coordinator.data_dir.empty()) throw CLI::RequiredError("--data-dir");
    if (const std::string wrong = CheckTogether(result.config); !wrong.empty())
      throw CLI::ValidationError(wrong);
  } catch (const CLI::CallForHelp&) {
    result.output = app.help();
    return result;
  } catch (const CLI::CallForVersion&) {
    result.output = app.version() + "\n";
    return result;
  } catch (const CLI::ParseError& error) {
    result.exit_code = kExitUsage;
    result.output = absl::StrCat("octavod: ", DescribeParseError(error), "\nTry octavod --help.\n");
    return result;
  }
  if (print_config) {
    result.output = app.config_to_str(true, false) + "\n";
    return result;
  }
  result.run = true;
  return result;
}

}  // namespace octavo::config

#include "client/run_client.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/command_line.h"
#include "client/commands/commands.h"
#include "client/example/task.h"
#include "client/render/format.h"
#include "client/render/job_text.h"

namespace octavo::client {
namespace {

ExitCode CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kUnreachable;
    case absl::StatusCode::kNotFound:
      return ExitCode::kNotFound;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnauthenticated:
      return ExitCode::kRefused;
    default:
      return ExitCode::kInternal;
  }
}

std::string ExitCodeHelp() {
  std::string text = "Exit codes:\n";
  for (const ExitCodeRow& row : kExitCodes) {
    absl::StrAppendFormat(&text, "  %-3d  %s\n", static_cast<int>(row.code), row.meaning);
  }
  absl::StrAppend(
      &text,
      "\nThe coordinator is the one of --server, else of OCTAVO_SERVER, else of `server: "
      "HOST:PORT` in\n~/.config/octavo/config.yaml, else ",
      kDefaultServer, ".");
  return text;
}

// The command line: what CLI11 fills in and which command was chosen.
class CommandLine {
 public:
  explicit CommandLine(const std::string& version) : app_(kDescription, "octavo") {
    app_.set_version_flag("--version", "octavo " + version);
    app_.require_subcommand(1);
    app_.fallthrough();  // `octavo jobs -o json` as well as `octavo -o json jobs`
    app_.footer(ExitCodeHelp());
    AddCommonFlags();
    AddSubmit();
    AddValidate();
    AddJobs();
    AddJobVerb("show", "Show everything about a job", Show);
    AddJobVerb("watch", "Follow a job with a progress bar; Ctrl-C leaves the job running", Watch);
    AddLogs();
    AddMetrics();
    AddCompare();
    AddJobVerb("cancel", "Stop a job", Cancel);
    AddVerb("workers", "List the workers and their devices",
            [](Context& context) { return Workers(context); });
    AddExample();
  }
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  CLI::App& app() { return app_; }
  Context::Options options() const {
    Context::Options options = options_;
    options.format = format_ == "json" ? Format::kJson : Format::kText;
    return options;
  }
  Outcome Run(Context& context) const { return chosen_(context); }

 private:
  static constexpr char kDescription[] = "Trains language models in FP8 on an Octavo coordinator.";
  static constexpr char kJobHelp[] = "Id of the job, or \"latest\"";
  using Verb = std::function<Outcome(Context&)>;

  void AddCommonFlags() {
    app_.add_option("--server", options_.server, "Host and port of the coordinator");
    app_.add_option("--timeout", options_.timeout_seconds, "Seconds that a call may take")
        ->check(CLI::Range(0.1, 3600.0))
        ->capture_default_str();
    app_.add_option("--patience", options_.patience_seconds,
                    "Seconds that watch, logs and metrics wait for a coordinator that went away")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    app_.add_option("-o,--output", format_,
                    "text, or json: one document, or one a line from commands that follow")
        ->check(CLI::IsMember({"text", "json"}))
        ->capture_default_str();
  }

  CLI::App* AddVerb(const std::string& name, const std::string& help, Verb verb) {
    CLI::App* app = app_.add_subcommand(name, help);
    app->callback([this, verb = std::move(verb)] { chosen_ = verb; });
    app->footer("Options that every verb takes, as -o json, and exit codes: octavo --help");
    return app;
  }

  void AddJobVerb(const std::string& name, const std::string& help,
                  Outcome (*run)(Context&, const std::string&)) {
    AddVerb(name, help, [this, run](Context& context) { return run(context, job_); })
        ->add_option("job", job_, kJobHelp)
        ->required();
  }

  static void AddFile(CLI::App* app, JobFile* file) {
    app->add_option("file", file->path, "Job file, YAML or JSON")->required();
    app->add_option("--set", file->overrides,
                    "Replace a field of the file, e.g. --set stages[0].steps=100; repeatable")
        ->type_name("PATH=VALUE")
        ->take_all()
        ->expected(1);
  }

  void AddSubmit() {
    CLI::App* app = AddVerb("submit", "Submit a job file",
                            [this](Context& context) { return Submit(context, submit_); });
    AddFile(app, &submit_.file);
    app->add_flag("--watch", submit_.watch, "Follow the job, as octavo watch does");
    app->add_flag("--no-validate", submit_.skip_validation,
                  "Do not let a worker open model and data before");
  }

  void AddValidate() {
    AddFile(AddVerb("validate", "Check a job file and plan its memory, without submitting it",
                    [this](Context& context) { return Validate(context, validate_); }),
            &validate_);
  }

  void AddJobs() {
    CLI::App* app = AddVerb("jobs", "List jobs, newest first",
                            [this](Context& context) { return Jobs(context, jobs_); });
    app->add_option("--state", jobs_.states, "Only jobs in this state; repeatable")
        ->check(CLI::IsMember(StateNames()));
    app->add_option("--limit", jobs_.limit, "Jobs to list")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
  }

  void AddLogs() {
    CLI::App* app = AddVerb("logs", "Print what the trainers of a job wrote",
                            [this](Context& context) { return Logs(context, logs_); });
    app->add_option("job", logs_.job, kJobHelp)->required();
    app->add_flag("-f,--follow", logs_.follow, "Go on until the job has ended");
    CLI::Option* offset = app->add_option("--offset", logs_.offset, "First line, counted from 0")
                              ->check(CLI::NonNegativeNumber);
    app->add_option("--tail", logs_.tail, "Only so many lines before the end")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
        ->excludes(offset);
  }

  void AddMetrics() {
    CLI::App* app = AddVerb("metrics", "Print the metrics of a job by step",
                            [this](Context& context) { return Metrics(context, metrics_); });
    app->add_option("job", metrics_.job, kJobHelp)->required();
    app->add_option("--name", metrics_.names, "Only this metric, e.g. train/loss; repeatable");
    app->add_flag("-f,--follow", metrics_.follow,
                  "Print points as they come, until the job has ended");
    app->add_option("--last", metrics_.last, "Steps that are shown as text; 0: all")
        ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
        ->capture_default_str();
  }

  void AddCompare() {
    CLI::App* app = AddVerb("compare", "Compare two jobs: what FP8 cost and what it saved",
                            [this](Context& context) { return Compare(context, compare_); });
    app->add_option("first", compare_.first, kJobHelp)->required();
    app->add_option("second", compare_.second, kJobHelp)->required();
  }

  void AddExample() {
    CLI::App* example = app_.add_subcommand("example", "Write a small task with its job files");
    example->require_subcommand(1);
    for (const Task& task : Tasks()) {
      CLI::App* app = example->add_subcommand(
          task.name, absl::StrCat(task.summary, "; model, data, bf16.yaml and fp8.yaml"));
      app->add_option("folder", example_.folder, "Folder to write into; made when missing")
          ->required();
      app->add_option("--seed", example_.seed, "Seed of the data")->capture_default_str();
      app->callback([this, name = std::string(task.name)] {
        example_.task = name;
        chosen_ = [this](Context& context) { return Example(context, example_); };
      });
    }
  }

  CLI::App app_;
  Context::Options options_;
  std::string format_ = "text";
  std::string job_;
  SubmitOptions submit_;
  JobFile validate_;
  JobsOptions jobs_;
  LogsOptions logs_;
  MetricsOptions metrics_;
  CompareOptions compare_;
  ExampleOptions example_;
  Verb chosen_;
};

// Without a verb CLI11 misses it before it looks at what stands in its place.
std::string UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> strange = app.remaining();
  const std::string what =
      app.get_subcommands().empty() && !strange.empty()
          ? absl::StrCat(
                "\"", strange.front(), "\" is not ",
                absl::StartsWith(strange.front(), "-") ? "an option of octavo itself" : "a verb")
          : DescribeParseError(error);
  return absl::StrCat(what, "; see octavo --help, or octavo VERB --help");
}

ExitCode Report(const absl::Status& status, const Terminal& terminal) {
  *terminal.error << "octavo: " << Printable(absl::StrReplaceAll(status.message(), {{"\n", " "}}))
                  << std::endl;
  return CodeOf(status);
}

}  // namespace

ExitCode RunClient(const std::vector<std::string>& arguments, const Environment& environment) {
  const Terminal& terminal = environment.terminal;
  CommandLine command_line(environment.version);
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants it
    command_line.app().parse(reversed);
  } catch (const CLI::CallForHelp&) {
    *terminal.out << command_line.app().help();
    return ExitCode::kOk;
  } catch (const CLI::CallForVersion&) {
    *terminal.out << command_line.app().version() << "\n";
    return ExitCode::kOk;
  } catch (const CLI::ParseError& error) {
    return Report(absl::InvalidArgumentError(UsageError(command_line.app(), error)), terminal);
  }
  Context context(environment, command_line.options());
  const Outcome outcome = command_line.Run(context);
  terminal.out->flush();
  if (!outcome.ok()) return Report(outcome.status(), terminal);
  if (!terminal.out->good()) {
    return Report(absl::InvalidArgumentError("standard output could not be written"), terminal);
  }
  return *outcome;
}

}  // namespace octavo::client

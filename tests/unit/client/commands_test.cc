// The verbs, as a user meets them: what they print where, and their exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/exit_code.h"
#include "proto/support/job_spec.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/client/client_run.h"

namespace octavo::client {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

constexpr char kJobFile[] = R"(
name: tiny
output_folder: /out
stages:
- kind: cpt
  steps: 20
  model: {folder: /model}
  data: {files: [/corpus.txt], sequence_length: 64}
  optimizer: {learning_rate: 1e-3}
)";

v1::Job Job(const std::string& id, v1::JobState state) {
  v1::Job job;
  job.set_id(id);
  job.set_state(state);
  job.mutable_spec()->set_name("tiny");
  job.mutable_spec()->add_stages()->mutable_recipe()->set_name("fp8");
  job.mutable_spec()->mutable_stages(0)->set_steps(20);
  job.mutable_submit_time()->set_seconds(1764547200);
  return job;
}

class CommandsTest : public testing::Test {
 protected:
  std::string WriteFile(const std::string& text) { return temporary_.Write("job.yaml", text); }

  ClientRun Octavo(const std::vector<std::string>& arguments) {
    return RunOctavo(EnvironmentOf(&coordinator_), arguments);
  }

  FakeCoordinator coordinator_;
  const testing_support::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(CommandsTest, HelpListsEveryVerbAndExitCode) {
  const ClientRun run = Octavo({"--help"});
  EXPECT_EQ(run.code, ExitCode::kOk);
  for (const char* verb : {"submit", "validate", "jobs", "show", "watch", "logs", "metrics",
                           "compare", "cancel", "workers", "example"}) {
    EXPECT_THAT(run.out, HasSubstr(absl::StrCat("\n  ", verb, " "))) << verb;
  }
  for (const ExitCodeRow& row : kExitCodes) EXPECT_THAT(run.out, HasSubstr(row.meaning));
}

TEST(ExitCodes, AreDocumentedRowByRow) {
  std::ifstream file(OCTAVO_SOURCE_DIR "/client/README.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const ExitCodeRow& row : kExitCodes) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("| ", static_cast<int>(row.code), " | ", row.meaning,
                                             " |\n")));
  }
}

TEST_F(CommandsTest, VersionIsPrinted) {
  const ClientRun run = Octavo({"--version"});
  EXPECT_EQ(run.code, ExitCode::kOk);
  EXPECT_EQ(run.out, "octavo 1.2.3\n");
}

TEST_F(CommandsTest, WrongArgumentsAreOneLineAndCode2) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"frob"},
                                             {"show"},
                                             {"jobs", "--limit", "0"},
                                             {"jobs", "--state", "odd"},
                                             {"logs", "job-a", "--tail", "1", "--offset", "1"},
                                             {"jobs", "-o", "xml"}}) {
    const ClientRun run = Octavo(arguments);
    EXPECT_EQ(run.code, ExitCode::kUsage);
    EXPECT_THAT(run.out, IsEmpty());
    EXPECT_THAT(run.error, StartsWith("octavo: "));
    EXPECT_EQ(std::count(run.error.begin(), run.error.end(), '\n'), 1) << run.error;
  }
}

TEST_F(CommandsTest, AMissingJobFileIsNamed) {
  const ClientRun run = Octavo({"submit", "/no/such/file.yaml"});
  EXPECT_EQ(run.code, ExitCode::kUsage);
  EXPECT_THAT(run.error, HasSubstr("/no/such/file.yaml"));
}

TEST_F(CommandsTest, ViolationsOfTheFileAreShownAtOnceAndNothingIsSent) {
  const std::string path = WriteFile("name: tiny\nnam: x\nstages:\n- kind: cpt\n  steps: many\n");
  const ClientRun run = Octavo({"submit", path});
  EXPECT_EQ(run.code, ExitCode::kFailed);
  EXPECT_THAT(run.error, HasSubstr(path + " has "));
  EXPECT_THAT(run.error, HasSubstr("  nam  "));
  EXPECT_THAT(run.error, HasSubstr("stages[0].steps "));
  EXPECT_THAT(run.error, HasSubstr("output_folder "));
  // The unreadable value is one violation: its default is not a second one.
  EXPECT_EQ(run.error.find("stages[0].steps "), run.error.rfind("stages[0].steps "));
  EXPECT_THAT(coordinator_.submits(), IsEmpty());
}

TEST_F(CommandsTest, ViolationsOfTheFileAndOfItsInputsAreListedTogether) {
  v1::ValidateJobResponse response;
  response.add_violations()->set_field("stages[0].data.files[0]");
  response.mutable_violations(0)->set_message("/corpus.txt: no such file");
  response.add_violations()->set_field("stages[0].steps");  // of the default of what is unread
  coordinator_.SetValidation(response);
  const std::string path = WriteFile(kJobFile);
  for (const char* verb : {"validate", "submit"}) {
    const ClientRun run = Octavo({verb, path, "--set", "stages[0].steps=many"});
    EXPECT_EQ(run.code, ExitCode::kFailed);
    EXPECT_THAT(run.error, HasSubstr(" has 2 violations:\n")) << run.error;
    EXPECT_THAT(run.error, HasSubstr("\"many\" is not a whole number"));
    EXPECT_THAT(run.error, HasSubstr("/corpus.txt: no such file"));
  }
  EXPECT_THAT(coordinator_.submits(), IsEmpty());
}

TEST_F(CommandsTest, AFileThatCannotBeReadAtAllIsNotSaidToLackFields) {
  const ClientRun run = Octavo({"validate", WriteFile("name: [")});
  EXPECT_EQ(run.code, ExitCode::kFailed);
  EXPECT_THAT(run.error, HasSubstr(" has 1 violation:\n"));
  EXPECT_THAT(run.error, HasSubstr("not YAML at line 1"));
}

TEST_F(CommandsTest, ViolationsOfTheFileNeedNoCoordinator) {
  const ClientRun run = RunOctavo(
      BareEnvironment(), {"validate", WriteFile(kJobFile), "--set", "stages[0].steps=many"});
  EXPECT_EQ(run.code, ExitCode::kFailed);
  EXPECT_THAT(run.error, HasSubstr(" has 1 violation:\n"));
  EXPECT_THAT(run.error, HasSubstr("warning: only the fields of the job file were checked"));
}

TEST_F(CommandsTest, SubmitPrintsTheIdAndHowToGoOn) {
  const ClientRun run = Octavo({"submit", WriteFile(kJobFile)});
  EXPECT_EQ(run.code, ExitCode::kOk);
  EXPECT_EQ(run.out, "submitted job-submit01 (tiny); follow it by: octavo watch job-submit01\n");
  EXPECT_THAT(run.error, IsEmpty());
}

TEST_F(CommandsTest, OverridesReachTheCoordinator) {
  const ClientRun run = Octavo({"submit", WriteFile(kJobFile), "--set", "stages[0].steps=7",
                                "--set", "stages[0].recipe.name=bf16"});
  EXPECT_EQ(run.code, ExitCode::kOk);
  ASSERT_THAT(coordinator_.submits(), SizeIs(1));
  EXPECT_EQ(coordinator_.submits()[0].spec().stages(0).steps(), 7);
  EXPECT_EQ(coordinator_.submits()[0].spec().stages(0).recipe().name(), "bf16");
}

TEST_F(CommandsTest, SubmitRepeatsALostAnswerUnderTheSameRequestId) {
  coordinator_.FailSubmits(
      {{grpc::StatusCode::UNAVAILABLE, "gone"}, {grpc::StatusCode::UNAVAILABLE, "gone"}});
  const ClientRun run = Octavo({"submit", WriteFile(kJobFile)});
  EXPECT_EQ(run.code, ExitCode::kOk) << run.error;
  const auto submits = coordinator_.submits();
  ASSERT_THAT(submits, SizeIs(3));
  EXPECT_THAT(submits[0].request_id(), SizeIs(32));
  EXPECT_EQ(submits[1].request_id(), submits[0].request_id());
  EXPECT_EQ(submits[2].request_id(), submits[0].request_id());
}

TEST_F(CommandsTest, EachSubmitHasARequestIdOfItsOwn) {
  const std::string path = WriteFile(kJobFile);
  Octavo({"submit", path});
  Octavo({"submit", path});
  ASSERT_THAT(coordinator_.submits(), SizeIs(2));
  EXPECT_NE(coordinator_.submits()[0].request_id(), coordinator_.submits()[1].request_id());
}

TEST_F(CommandsTest, AFullQueueIsARefusal) {
  coordinator_.FailSubmits({{grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full"}});
  const ClientRun run = Octavo({"submit", WriteFile(kJobFile)});
  EXPECT_EQ(run.code, ExitCode::kRefused);
  EXPECT_EQ(run.error, "octavo: the queue is full\n");
  EXPECT_THAT(coordinator_.submits(), SizeIs(1));  // asking again would not help
}

TEST_F(CommandsTest, ViolationsThatTheCoordinatorFindsAtSubmitAreListed) {
  v1::Violations violations;
  violations.add_violations()->set_field("stages[0].divergence.baseline_job");
  violations.mutable_violations(0)->set_message("no such job");
  coordinator_.AnswerSubmitsWithViolations(violations);
  const ClientRun run = Octavo({"submit", WriteFile(kJobFile), "--no-validate"});
  EXPECT_EQ(run.code, ExitCode::kFailed);
  EXPECT_THAT(run.error, HasSubstr("  stages[0].divergence.baseline_job  no such job\n"));
}

TEST_F(CommandsTest, ViolationsThatAWorkerFindsStopASubmit) {
  v1::ValidateJobResponse response;
  response.add_violations()->set_field("stages[0].data.files[0]");
  response.mutable_violations(0)->set_message("/corpus.txt: no such file");
  response.add_warnings("mind this");
  coordinator_.SetValidation(response);
  const std::string path = WriteFile(kJobFile);
  const ClientRun run = Octavo({"submit", path});
  EXPECT_EQ(run.code, ExitCode::kFailed);
  EXPECT_THAT(run.error, HasSubstr("octavo: warning: mind this\n"));
  EXPECT_THAT(run.error, HasSubstr("no such file"));
  EXPECT_THAT(coordinator_.submits(), IsEmpty());
  EXPECT_EQ(Octavo({"submit", path, "--no-validate"}).code, ExitCode::kOk);
  EXPECT_THAT(coordinator_.submits(), SizeIs(1));
}

TEST_F(CommandsTest, ValidateShowsThePlan) {
  v1::ValidateJobResponse response;
  response.mutable_plan()->set_parameters(134515008);
  response.mutable_plan()->set_total_bytes(int64_t{3} << 30);
  response.mutable_plan()->set_workspaces_bytes(int64_t{5} << 20);
  response.mutable_plan()->set_backend_bytes(int64_t{6} << 20);
  response.mutable_plan()->set_corpus_bytes(int64_t{7} << 20);
  response.mutable_plan()->set_program_bytes(int64_t{8} << 20);
  response.mutable_plan()->set_train_tokens(1000);
  response.mutable_plan()->set_epochs(1.5);
  coordinator_.SetValidation(response);
  const ClientRun run = Octavo({"validate", WriteFile(kJobFile)});
  EXPECT_EQ(run.code, ExitCode::kOk);
  EXPECT_THAT(run.out, HasSubstr("can be submitted\n"));
  EXPECT_THAT(run.out, HasSubstr("134,515,008"));
  EXPECT_THAT(run.out, HasSubstr("memory in all             3.0 GiB"));
  for (const char* row : {"workspaces                5.0 MiB", "the backend's own         6.0 MiB",
                          "corpus                    7.0 MiB", "program                   8.0 MiB"})
    EXPECT_THAT(run.out, HasSubstr(row));
  EXPECT_THAT(run.out, HasSubstr("1.50"));
}

TEST_F(CommandsTest, JobsAreListedOverPages) {
  for (int i = 0; i < 5; ++i) {
    coordinator_.Put(Job(absl::StrCat("job-", i), v1::JOB_STATE_PENDING));
  }
  ClientRun run = Octavo({"jobs"});
  EXPECT_EQ(run.code, ExitCode::kOk);
  for (int i = 0; i < 5; ++i) EXPECT_THAT(run.out, HasSubstr(absl::StrCat("job-", i, "  tiny")));
  EXPECT_THAT(run.out, HasSubstr("2025-12-01 00:00:00"));
  run = Octavo({"jobs", "--limit", "3"});
  EXPECT_THAT(run.out, Not(HasSubstr("job-1")));
  EXPECT_THAT(run.error, HasSubstr("--limit"));
}

TEST_F(CommandsTest, NoJobsAndNoWorkersAreSaid) {
  EXPECT_EQ(Octavo({"jobs"}).out, "no jobs\n");
  EXPECT_THAT(Octavo({"workers"}).out, HasSubstr("octavo-worker --server"));
}

TEST_F(CommandsTest, LatestIsTheNewestJob) {
  EXPECT_EQ(Octavo({"show", "latest"}).code, ExitCode::kNotFound);
  coordinator_.Put(Job("job-old", v1::JOB_STATE_SUCCEEDED));
  coordinator_.Put(Job("job-new", v1::JOB_STATE_PENDING));
  EXPECT_THAT(Octavo({"show", "latest"}).out, HasSubstr("job-new"));
}

TEST_F(CommandsTest, AnUnknownJobIsCode4) {
  for (const char* verb : {"show", "watch", "logs", "metrics", "cancel"}) {
    const ClientRun run = Octavo({verb, "job-none"});
    EXPECT_EQ(run.code, ExitCode::kNotFound) << verb;
    EXPECT_THAT(run.error, HasSubstr("job-none")) << verb;
  }
}

TEST_F(CommandsTest, ShowTellsAboutAFailure) {
  v1::Job job = Job("job-bad", v1::JOB_STATE_FAILED);
  job.mutable_failure()->set_cause(v1::FAILURE_CAUSE_OUT_OF_MEMORY);
  job.mutable_failure()->set_message("needs 12 GiB\nof 8");
  v1::Attempt& attempt = *job.add_attempts();
  attempt.set_worker_id("w1");
  attempt.set_epoch(1);
  *attempt.mutable_failure() = job.failure();
  coordinator_.Put(job);
  const ClientRun run = Octavo({"show", "job-bad"});
  EXPECT_EQ(run.code, ExitCode::kOk);
  EXPECT_THAT(run.out, HasSubstr("out of memory: needs 12 GiB?of 8"));
  EXPECT_THAT(run.out, HasSubstr("w1"));
}

TEST_F(CommandsTest, CancellingAnEndedJobIsRefused) {
  coordinator_.Put(Job("job-run", v1::JOB_STATE_RUNNING));
  coordinator_.Put(Job("job-end", v1::JOB_STATE_SUCCEEDED));
  EXPECT_EQ(Octavo({"cancel", "job-run"}).code, ExitCode::kOk);
  const ClientRun run = Octavo({"cancel", "job-end"});
  EXPECT_EQ(run.code, ExitCode::kRefused);
  EXPECT_EQ(run.error, "octavo: the job has succeeded\n");
}

TEST_F(CommandsTest, LogsStartWhereAsked) {
  coordinator_.Put(Job("job-a", v1::JOB_STATE_SUCCEEDED));
  for (const char* line : {"one", "two", "\x1b[31mthree"}) coordinator_.AddLine(line);
  EXPECT_EQ(Octavo({"logs", "job-a"}).out, "one\ntwo\n?[31mthree\n");
  EXPECT_EQ(Octavo({"logs", "job-a", "--offset", "1"}).out, "two\n?[31mthree\n");
  EXPECT_EQ(Octavo({"logs", "job-a", "--tail", "1"}).out, "?[31mthree\n");
}

TEST_F(CommandsTest, MetricsAreATableByStep) {
  coordinator_.Put(Job("job-a", v1::JOB_STATE_SUCCEEDED));
  coordinator_.AddPoint("train/loss", 1, 2.5);
  coordinator_.AddPoint("train/loss", 2, 2.25);
  coordinator_.AddPoint("divergence/probe_ratio", 2, 0.01);
  EXPECT_EQ(Octavo({"metrics", "job-a"}).out,
            "step  train/loss  divergence/probe_ratio\n"
            "   1         2.5                       -\n"
            "   2        2.25                    0.01\n");
  EXPECT_EQ(Octavo({"metrics", "job-a", "--last", "1", "--name", "train/loss"}).out,
            "step  train/loss\n"
            "   2        2.25\n");
  EXPECT_EQ(Octavo({"metrics", "job-a", "-f"}).out,
            "1 train/loss 2.5\n2 train/loss 2.25\n2 divergence/probe_ratio 0.01\n");
}

TEST_F(CommandsTest, CompareDrawsBothJobs) {
  coordinator_.Put(Job("job-a", v1::JOB_STATE_SUCCEEDED));
  coordinator_.Put(Job("job-b", v1::JOB_STATE_SUCCEEDED));
  coordinator_.AddPoint("train/loss", 1, 2.5);
  coordinator_.AddPoint("train/loss", 2, 2.25);
  const ClientRun run = Octavo({"compare", "job-a", "job-b"});
  EXPECT_EQ(run.code, ExitCode::kOk);
  EXPECT_THAT(run.out, HasSubstr("training loss\n"));
  EXPECT_THAT(run.out, HasSubstr("oo fp8 job-a   ** fp8 job-b"));
}

// Every verb's JSON parses, has the field names of the .proto files, and nothing else is on stdout.
TEST_F(CommandsTest, JsonIsOneDocument) {
  coordinator_.Put(Job("job-a", v1::JOB_STATE_SUCCEEDED));
  coordinator_.AddPoint("train/loss", 1, 2.5);
  coordinator_.AddWorker({});
  v1::ValidateJobResponse response;
  response.mutable_plan()->set_total_bytes(5);
  coordinator_.SetValidation(response);
  const std::string path = WriteFile(kJobFile);
  const auto json = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"-o", "json"});
    return nlohmann::json::parse(Octavo(arguments).out);
  };
  EXPECT_EQ(json({"jobs"})["jobs"][0]["submit_time"], "2025-12-01T00:00:00Z");
  EXPECT_EQ(json({"show", "job-a"})["id"], "job-a");
  EXPECT_EQ(json({"submit", path})["id"], "job-submit01");
  EXPECT_EQ(json({"validate", path})["plan"]["total_bytes"], "5");
  EXPECT_TRUE(json({"workers"}).contains("workers"));
  EXPECT_EQ(json({"metrics", "job-a"})["points"][0]["name"], "train/loss");
  EXPECT_EQ(json({"compare", "job-a", "job-a"})["reference"], "job-a");
}

TEST_F(CommandsTest, JsonOfStreamsIsOneDocumentALine) {
  coordinator_.Put(Job("job-a", v1::JOB_STATE_SUCCEEDED));
  coordinator_.AddPoint("train/loss", 1, 2.5);
  coordinator_.AddLine("one");
  coordinator_.AddLine("two");
  for (const char* verb : {"logs", "watch"}) {
    const ClientRun run = Octavo({"-o", "json", verb, "job-a"});
    int documents = 0;
    for (absl::string_view line : absl::StrSplit(run.out, '\n', absl::SkipEmpty())) {
      EXPECT_TRUE(nlohmann::json::parse(line).is_object());
      ++documents;
    }
    EXPECT_EQ(documents, 2) << verb;
  }
}

TEST_F(CommandsTest, ACoordinatorThatIsAwayIsCode3) {
  for (const char* verb : {"jobs", "workers"}) {
    const ClientRun run = RunOctavo(BareEnvironment(), {verb, "--server", "nowhere:1"});
    EXPECT_EQ(run.code, ExitCode::kUnreachable);
    EXPECT_THAT(run.error, HasSubstr("nowhere:1"));
    EXPECT_THAT(run.error, HasSubstr("OCTAVO_SERVER"));
  }
}

class ExampleTest : public CommandsTest, public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Tasks, ExampleTest, ::testing::Values("cipher", "arithmetic"));

TEST_P(ExampleTest, WritesTheSameJobInTwoRecipes) {
  const ClientRun run = Octavo({"example", GetParam(), folder_ + "/x/../example"});
  ASSERT_EQ(run.code, ExitCode::kOk) << run.error;
  v1::JobSpec specs[2];
  for (const int i : {0, 1}) {
    const std::string path = folder_ + (i == 0 ? "/example/bf16.yaml" : "/example/fp8.yaml");
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const ParsedSpec parsed = ParseJobSpec(text, {});
    EXPECT_THAT(parsed.violations, IsEmpty()) << path;
    specs[i] = parsed.spec;
    FillDefaults(&specs[i]);
    EXPECT_EQ(JoinViolations(CheckJobSpec(specs[i])), "");
    const v1::Stage& stage = specs[i].stages(0);
    for (const std::string& written : {stage.data().files(0), stage.evaluation().exact_match_file(),
                                       stage.model().folder() + "/config.json"}) {
      EXPECT_THAT(written, StartsWith(folder_ + "/example/"));
      EXPECT_TRUE(std::filesystem::exists(written)) << written;
    }
  }
  EXPECT_EQ(specs[0].stages(0).recipe().name(), "bf16");
  EXPECT_EQ(specs[1].stages(0).recipe().name(), "fp8");
  specs[1].set_name(specs[0].name());
  *specs[1].mutable_stages(0)->mutable_recipe() = specs[0].stages(0).recipe();
  EXPECT_EQ(specs[0].SerializeAsString(), specs[1].SerializeAsString());
}

TEST_F(CommandsTest, AnExampleFolderThatCannotBeMadeIsCode2) {
  const ClientRun run = Octavo({"example", "arithmetic", "/proc/none"});
  EXPECT_EQ(run.code, ExitCode::kUsage);
  EXPECT_THAT(run.error, HasSubstr("/proc/none"));
}

TEST_F(CommandsTest, NoEscapeCodesLeaveWithoutATerminal) {
  v1::Job job = Job("job-a", v1::JOB_STATE_FAILED);
  job.mutable_spec()->set_name("\x1b[31mevil");
  job.mutable_failure()->set_message("\x1b]0;title\x07");
  coordinator_.Put(job);
  coordinator_.AddPoint("train/loss", 1, 2.5);
  coordinator_.AddLine("\x1b[2J");
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"jobs"},
                                             {"show", "job-a"},
                                             {"watch", "job-a"},
                                             {"logs", "job-a"},
                                             {"metrics", "job-a"},
                                             {"compare", "job-a", "job-a"},
                                             {"workers"},
                                             {"--help"}}) {
    const ClientRun run = Octavo(arguments);
    EXPECT_THAT(run.out + run.error, Not(HasSubstr("\x1b"))) << arguments[0];
  }
}

}  // namespace
}  // namespace octavo::client

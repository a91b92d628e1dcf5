// The store: what was committed is there, whole, whatever happens to the process or the disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/storage/schema.h"
#include "server/storage/sqlite_store.h"
#include "server/storage/store_reader.h"
#include "tests/support/durable_map.h"
#include "tests/support/server_jobs.h"
#include "tests/support/temporary_folder.h"

namespace octavo::storage {
namespace {

using testing::HasSubstr;
using testing_support::DurableMap;
using testing_support::Point;
using testing_support::SomeSpec;
using testing_support::TemporaryFolder;

std::unique_ptr<SqliteStore> OpenStore(const std::string& path, int64_t max_bytes = 0) {
  auto store = SqliteStore::Open({.path = path, .max_bytes = max_bytes});
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

core::PutJob SomeJob(int64_t order, v1::JobState state = v1::JOB_STATE_PENDING) {
  auto record = std::make_shared<core::JobRecord>();
  record->order = order;
  record->job.set_id(absl::StrCat("job-", order));
  record->job.set_state(state);
  *record->job.mutable_spec() = SomeSpec();
  return {std::move(record)};
}

core::PutLogs SomeLines(const std::string& job_id, int64_t offset,
                        const std::vector<std::string>& texts) {
  core::PutLogs put;
  for (const std::string& text : texts) {
    v1::LogLine& line = put.lines.emplace_back();
    line.set_offset(offset++);
    line.set_text(text);
    line.set_attempt_id(job_id + ".1");
  }
  put.cursor = {.job_id = job_id,
                .next_offset = offset,
                .bytes = 7,
                .full = true,
                .epoch = 1,
                .next_sequence = 3};
  return put;
}

// A state as text, in an order of its own, so that two can be compared and printed.
std::string Describe(const core::DurableState& state) {
  std::map<std::string, std::string> parts;
  for (const auto& put : state.jobs) {
    const v1::Job& job = put.record->job;
    parts["job " + job.id()] = absl::StrCat(put.record->order, " ", job.SerializeAsString());
  }
  for (const auto& put : state.requests)
    parts["request " + put.request_id] = put.job_id + put.spec_sha256;
  for (const auto& cursor : state.log_cursors) {
    parts["log " + cursor.job_id] =
        absl::StrCat(cursor.next_offset, " ", cursor.bytes, " ", cursor.full, " ", cursor.epoch,
                     " ", cursor.next_sequence);
  }
  std::string text;
  for (const auto& [key, value] : parts) absl::StrAppend(&text, key, ": ", value, "\n");
  return text;
}

// Twenty transactions over jobs, requests, metrics and logs.
std::vector<std::vector<core::Write>> SomeHistory() {
  std::vector<std::vector<core::Write>> history;
  for (int64_t i = 1; i <= 20; ++i) {
    const core::PutJob job = SomeJob(i);
    const std::string& id = job.record->job.id();
    history.push_back({job, core::PutRequest{absl::StrCat("request-", i), id, "hash"},
                       SomeLines(id, 0, {"a line"}),
                       core::PutMetrics{id, {Point("train/loss", i, 1.0 / i)}}});
  }
  return history;
}

TEST(Store, GivesBackWhatWasCommitted) {
  TemporaryFolder folder;
  DurableMap expected;
  for (const auto& writes : SomeHistory()) {
    ASSERT_TRUE(OpenStore(folder.path() + "/s")->Commit(writes).ok());
    for (const auto& write : writes) expected.Apply(write);
    EXPECT_EQ(Describe(*OpenStore(folder.path() + "/s")->Load()), Describe(expected.State()));
  }
}

TEST(Store, ChangesNothingWhenATransactionIsAppliedTwice) {
  TemporaryFolder folder;
  const auto store = OpenStore(folder.path() + "/s");
  const auto writes = SomeHistory().at(3);
  ASSERT_TRUE(store->Commit(writes).ok());
  const std::string once = Describe(*store->Load());
  ASSERT_TRUE(store->Commit(writes).ok());
  EXPECT_EQ(Describe(*store->Load()), once);
}

// A crash or a power cut leaves some length of the log on disk; whatever it is, the state is one
// that was committed.
TEST(Store, RecoversAPrefixOfTheCommitsFromEveryLengthOfItsLog) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/s";
  const auto store = OpenStore(path);
  std::vector<std::string> prefixes = {Describe({})};
  DurableMap expected;
  for (const auto& writes : SomeHistory()) {
    ASSERT_TRUE(store->Commit(writes).ok());
    for (const auto& write : writes) expected.Apply(write);
    prefixes.push_back(Describe(expected.State()));
  }
  const auto log_bytes = static_cast<int64_t>(std::filesystem::file_size(path + "-wal"));
  size_t reached = 0;
  for (int64_t length = 0; length <= log_bytes;
       length += 3001) {  // falls into pages, not between them
    const std::string copy = absl::StrCat(folder.path(), "/copy", length);
    std::filesystem::copy_file(path, copy);
    std::filesystem::copy_file(path + "-wal", copy + "-wal");
    std::filesystem::resize_file(copy + "-wal", static_cast<uintmax_t>(length));
    const std::string state = Describe(*OpenStore(copy)->Load());
    const auto found =
        std::find(prefixes.begin() + static_cast<int64_t>(reached), prefixes.end(), state);
    ASSERT_NE(found, prefixes.end())
        << "a log of " << length << " bytes gives a state that never was";
    reached = static_cast<size_t>(found - prefixes.begin());
  }
  EXPECT_GE(reached, 18u) << "a longer log keeps more";
}

TEST(Store, RefusesATransactionWholeWhenItIsFull) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/s";
  auto store = OpenStore(path, 128 << 10);
  int64_t stored = 0;
  absl::Status status;
  while (status.ok()) {
    status = store->Commit({SomeJob(2 * stored + 1), SomeJob(2 * stored + 2)});
    if (status.ok()) ++stored;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_EQ(store->Load()->jobs.size(), static_cast<size_t>(2 * stored));
  store = nullptr;
  store = OpenStore(path, 256 << 10);
  EXPECT_TRUE(store->Commit({SomeJob(1000)}).ok()) << "there is room again";
}

TEST(Store, ForgetsLogCursorsOfEndedJobs) {
  TemporaryFolder folder;
  const auto store = OpenStore(folder.path() + "/s");
  ASSERT_TRUE(store->Commit({SomeJob(1), SomeLines("job-1", 0, {"x"})}).ok());
  EXPECT_EQ(store->Load()->log_cursors.size(), 1u);
  ASSERT_TRUE(store->Commit({SomeJob(1, v1::JOB_STATE_SUCCEEDED)}).ok());
  EXPECT_EQ(store->Load()->log_cursors.size(), 0u);
}

TEST(Store, IsPrivateToItsUser) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/s";
  const auto store = OpenStore(path);
  for (const char* suffix : {"", "-wal", "-shm"}) {
    struct stat info {};
    ASSERT_EQ(stat((path + suffix).c_str(), &info), 0) << suffix;
    EXPECT_EQ(info.st_mode & 0777, 0600u) << suffix;
  }
}

TEST(Store, RefusesAFileOfANewerVersion) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/s";
  OpenStore(path);
  auto database = Database::Open(path, Database::Mode::kReadWrite);
  ASSERT_TRUE(database->Execute(absl::StrCat("PRAGMA user_version=", kSchemaVersion + 6)).ok());
  const absl::Status status = SqliteStore::Open({.path = path}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("schema version ", kSchemaVersion + 6)));
}

TEST(Store, RefusesADatabaseOfAnotherProgramAndOtherFiles) {
  TemporaryFolder folder;
  auto database = Database::Open(folder.path() + "/foreign", Database::Mode::kReadWrite);
  ASSERT_TRUE(database->Execute("CREATE TABLE albums(title TEXT)").ok());
  EXPECT_EQ(SqliteStore::Open({.path = folder.path() + "/foreign"}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  std::ofstream(folder.path() + "/text") << std::string(5000, 'x');
  EXPECT_EQ(SqliteStore::Open({.path = folder.path() + "/text"}).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(Store, KeepsEveryValueOfAMetric) {
  TemporaryFolder folder;
  const auto store = OpenStore(folder.path() + "/s");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  ASSERT_TRUE(store
                  ->Commit({SomeJob(1), core::PutMetrics{"job-1",
                                                         {Point("train/loss", 1, NAN),
                                                          Point("train/loss", 2, kInfinity),
                                                          Point("train/loss", 4, 5e-324)}}})
                  .ok());
  const auto curve = *store->ReadCurve("job-1", "train/loss", 1, 4);
  EXPECT_TRUE(std::isnan(curve.at(1)));
  EXPECT_EQ(curve.at(2), kInfinity);
  EXPECT_EQ(curve.at(4), 5e-324);
}

class StoreReaderTest : public testing::Test {
 protected:
  void Put(const core::Write& write) { ASSERT_TRUE(store_->Commit({write}).ok()); }

  TemporaryFolder folder_;
  std::unique_ptr<SqliteStore> store_ = OpenStore(folder_.path() + "/s");
  std::unique_ptr<StoreReader> reader_ = *StoreReader::Open(folder_.path() + "/s");
};

TEST_F(StoreReaderTest, ReplacesARepeatedPoint) {
  Put(SomeJob(1));
  Put(core::PutMetrics{"job-1", {Point("train/loss", 5, 3.0)}});
  Put(core::PutMetrics{"job-1", {Point("train/loss", 5, 2.0)}});
  const auto page = *reader_->ReadMetrics({.job_id = "job-1", .names = {}, .max_points = 10});
  ASSERT_EQ(page.points.size(), 1u);
  EXPECT_EQ(page.points[0].value(), 2.0);
}

TEST_F(StoreReaderTest, PagesMetricsByWholeSteps) {
  Put(SomeJob(1));
  Put(SomeJob(2));
  for (int64_t step = 1; step <= 5; ++step) {
    Put(core::PutMetrics{"job-1", {Point("train/tokens", step, 1), Point("train/loss", step, 2)}});
    Put(core::PutMetrics{"job-2", {Point("train/loss", step, 9)}});
  }
  std::vector<std::string> seen;
  int64_t after = 0;
  int pages = 0;
  do {
    const auto page = *reader_->ReadMetrics(
        {.job_id = "job-1", .names = {}, .after_step = after, .max_points = 3});
    for (const auto& point : page.points) seen.push_back(absl::StrCat(point.step(), point.name()));
    after = page.next_after_step;
    ++pages;
  } while (after != 0);
  EXPECT_EQ(pages, 3);
  ASSERT_EQ(seen.size(), 10u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST_F(StoreReaderTest, SelectsMetricsByName) {
  Put(SomeJob(1));
  Put(core::PutMetrics{
      "job-1",
      {Point("train/tokens", 1, 1), Point("train/loss", 1, 2), Point("memory/peak_bytes", 1, 3)}});
  const auto page = *reader_->ReadMetrics(
      {.job_id = "job-1", .names = {"train/loss", "train/tokens"}, .max_points = 10});
  ASSERT_EQ(page.points.size(), 2u);
  EXPECT_EQ(page.points[0].name(), "train/loss");
  EXPECT_EQ(page.points[1].name(), "train/tokens");
}

TEST_F(StoreReaderTest, PagesLogsByBytes) {
  Put(SomeJob(1));
  Put(SomeLines("job-1", 0, {"aaaa", "bbbb", "cccc", std::string(100, 'd'), "e"}));
  std::vector<size_t> sizes;
  StoreReader::LogPage page;
  while (!page.at_end) {
    page = *reader_->ReadLogs({.job_id = "job-1", .offset = page.next_offset, .max_bytes = 8});
    sizes.push_back(page.lines.size());
  }
  EXPECT_THAT(sizes, testing::ElementsAre(2, 1, 1, 1));
  EXPECT_EQ(page.next_offset, 5);
}

TEST_F(StoreReaderTest, CountsANegativeOffsetFromTheEnd) {
  Put(SomeJob(1));
  Put(SomeLines("job-1", 0, {"a", "b", "c"}));
  EXPECT_EQ(
      reader_->ReadLogs({.job_id = "job-1", .offset = -2, .max_bytes = 99})->lines.at(0).text(),
      "b");
  EXPECT_EQ(reader_->ReadLogs({.job_id = "job-1", .offset = -9, .max_bytes = 99})->lines.size(),
            3u);
  EXPECT_TRUE(
      reader_
          ->ReadLogs(
              {.job_id = "job-2", .offset = std::numeric_limits<int64_t>::min(), .max_bytes = 99})
          ->lines.empty());
}

}  // namespace
}  // namespace octavo::storage

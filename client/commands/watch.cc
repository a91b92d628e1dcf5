#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "client/commands/commands.h"
#include "client/job_feed.h"
#include "client/render/format.h"
#include "client/render/job_text.h"
#include "client/render/json.h"
#include "client/render/progress.h"

namespace octavo::client {
namespace {

// How often Ctrl-C is looked for and the bar redrawn.
constexpr absl::Duration kRefresh = absl::Milliseconds(100);
// Without a terminal: lines per job at equal steps, and at least one in so long.
constexpr int64_t kLinesPerJob = 20;
constexpr absl::Duration kLongestSilence = absl::Seconds(30);

// What a watcher sees: lines, below them a bar that is redrawn on a terminal.
class Screen {
 public:
  explicit Screen(const Context& context) : context_(context) {}

  void Take(const v1::Job& job) {
    if (context_.json()) {
      context_.out() << JsonLine(job) << std::flush;
    } else {
      if (job_ == nullptr) {
        Say(absl::StrCat(job.id(), " (", Printable(job.spec().name()), ", ", RecipeOf(job), ", ",
                         StepsOf(job), " steps)"));
        progress_ = std::make_unique<Progress>(StepsOf(job));
      }
      for (const std::string& line : DescribeChange(job_.get(), job)) Say(line);
    }
    job_ = std::make_unique<v1::Job>(job);
    AddPoints();
  }

  void Take(const v1::MetricPoints& points) {
    if (context_.json()) {
      context_.out() << JsonLine(points) << std::flush;
      return;
    }
    early_.MergeFrom(points);
    AddPoints();
  }

  void Take(const JobFeed::Notice& notice) {
    EraseBar();
    context_.error() << "octavo: " << notice.text << std::endl;
  }

  // Draws the bar where that is due. Cheap to call.
  void Refresh() {
    if (!bar_is_old_ || absl::Now() - drawn_time_ < kRefresh) return;
    if (context_.terminal().interactive && progress_ != nullptr && progress_->step() > 0) DrawBar();
  }

  // No event came for a while: the newest step is complete.
  void Pause() {
    if (progress_ != nullptr) SayProgressIfDue();
  }

  ExitCode Finish() {
    if (!context_.json() && progress_ != nullptr && progress_->step() > 0) {
      if (context_.terminal().interactive) {
        DrawBar();
        context_.out() << "\n";
        bar_is_drawn_ = false;
      } else if (progress_->step() != said_step_) {
        Say(progress_->Line());
      }
    }
    const bool succeeded = job_ != nullptr && job_->state() == v1::JOB_STATE_SUCCEEDED;
    if (!context_.json() && job_ != nullptr) Say(DescribeEnd(*job_));
    return succeeded ? ExitCode::kOk : ExitCode::kFailed;
  }

  void EraseBar() {
    if (bar_is_drawn_) context_.out() << "\r\x1b[K" << std::flush;
    bar_is_drawn_ = false;
    bar_is_old_ = true;
  }

 private:
  void AddPoints() {
    if (progress_ == nullptr || early_.points().empty()) return;
    for (const v1::MetricPoint& point : early_.points()) {
      if (point.step() != progress_->step()) SayProgressIfDue();  // that step is complete
      progress_->Add(point);
    }
    early_.Clear();
    bar_is_old_ = true;
  }

  void DrawBar() {
    context_.out() << "\r\x1b[K" << progress_->Bar(context_.terminal()) << std::flush;
    bar_is_drawn_ = true;
    bar_is_old_ = false;
    drawn_time_ = absl::Now();
  }

  void Say(const std::string& line) {
    EraseBar();
    context_.out() << line << std::endl;
  }

  void SayProgressIfDue() {
    if (context_.terminal().interactive || progress_->step() == 0) return;
    const int64_t every = std::max<int64_t>(progress_->steps() / kLinesPerJob, 1);
    const bool new_share = progress_->step() / every != said_step_ / every;
    const bool silent = absl::Now() - said_time_ > kLongestSilence;
    if (progress_->step() == said_step_ || (!new_share && !silent)) return;
    said_step_ = progress_->step();
    said_time_ = absl::Now();
    Say(progress_->Line());
  }

  const Context& context_;
  std::unique_ptr<v1::Job> job_;  // null before the first word about it
  std::unique_ptr<Progress> progress_;
  v1::MetricPoints early_;  // came before the first word about the job
  bool bar_is_drawn_ = false;
  bool bar_is_old_ = false;
  absl::Time drawn_time_ = absl::InfinitePast();
  int64_t said_step_ = 0;
  absl::Time said_time_ = absl::Now();
};

}  // namespace

Outcome Watch(Context& context, const std::string& job) {
  ASSIGN_OR_RETURN(Client* const client, context.client());
  ASSIGN_OR_RETURN(const std::string job_id, client->ResolveJob(job));
  Screen screen(context);
  JobFeed feed(client, {.job_id = job_id, .patience = context.patience()});
  while (true) {
    const std::optional<JobFeed::Event> event = feed.Next(kRefresh);
    if (context.environment().interrupted()) {
      screen.EraseBar();
      context.error() << "\noctavo: " << job_id << " runs on; watch it again by: octavo watch "
                      << job_id << ", end it by: octavo cancel " << job_id << "\n";
      return ExitCode::kInterrupted;
    }
    screen.Refresh();
    if (!event) {
      screen.Pause();
      continue;
    }
    if (const auto* change = std::get_if<v1::Job>(&*event)) screen.Take(*change);
    if (const auto* points = std::get_if<v1::MetricPoints>(&*event)) screen.Take(*points);
    if (const auto* notice = std::get_if<JobFeed::Notice>(&*event)) screen.Take(*notice);
    if (const auto* end = std::get_if<JobFeed::End>(&*event)) {
      RETURN_IF_ERROR(end->status);
      return screen.Finish();
    }
  }
}

}  // namespace octavo::client

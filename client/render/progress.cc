#include "client/render/progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/render/format.h"
#include "proto/support/metric_table.h"

namespace octavo::client {
namespace {

// Steps whose pace the estimate takes: enough to hold a few probes, few enough to follow a change.
constexpr size_t kPaceSteps = 40;

// Narrow enough to leave 80 columns room for the figures up to the divergence.
int BarColumns(const Terminal& terminal) { return std::clamp(terminal.columns / 10, 6, 24); }

std::string DrawBar(const Terminal& terminal, double share) {
  const int width = BarColumns(terminal);
  const double columns = std::clamp(share, 0.0, 1.0) * width;
  const int full = static_cast<int>(columns);
  std::string bar;
  for (int i = 0; i < full; ++i) bar += terminal.unicode ? "█" : "#";
  int drawn = full;
  if (terminal.unicode && full < width) {
    constexpr const char* kEighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    bar += kEighths[static_cast<int>((columns - full) * 8)];
    ++drawn;
  }
  return absl::StrCat(Paint(terminal, Color::kGreen, bar),
                      std::string(width - drawn, terminal.unicode ? ' ' : '.'));
}

}  // namespace

void Progress::Add(const v1::MetricPoint& point) {
  if (point.step() != step_) {
    if (point.step() < step_) ticks_.clear();  // a later attempt repeats steps
    step_ = point.step();
    ticks_.push_back({step_, point.time_unix_ms()});
    if (ticks_.size() > kPaceSteps) ticks_.pop_front();
  }
  if (point.name() == metric::kLoss) loss_ = point.value();
  if (point.name() == metric::kNonfiniteSteps) {
    applied_ = !nonfinite_steps_ || point.value() <= *nonfinite_steps_;
    nonfinite_steps_ = point.value();
  }
  if (point.name() == metric::kTokensPerSecond) tokens_per_second_ = point.value();
  if (point.name() == metric::kMemoryPeakBytes) memory_bytes_ = point.value();
  if (point.name() == metric::kProbeRatio) divergence_ = point.value();
}

absl::Duration Progress::Remaining() const {
  if (step_ >= steps_) return absl::ZeroDuration();
  if (ticks_.size() < 2) return absl::InfiniteDuration();
  const absl::Duration taken =
      absl::Milliseconds(ticks_.back().time_unix_ms - ticks_.front().time_unix_ms);
  const int64_t covered = ticks_.back().step - ticks_.front().step;
  return taken / covered * (steps_ - step_);
}

std::vector<std::string> Progress::Figures() const {
  std::vector<std::string> figures = {absl::StrCat(step_, "/", steps_)};
  if (!applied_) {
    figures.push_back("not finite, not applied");
  } else if (loss_) {
    figures.push_back("loss " + FormatLoss(*loss_));
  }
  if (tokens_per_second_) figures.push_back(FormatCount(*tokens_per_second_) + " tok/s");
  if (const absl::Duration left = Remaining(); left != absl::InfiniteDuration() && step_ < steps_) {
    figures.push_back("left " + FormatSpan(left));
  }
  if (divergence_) figures.push_back("fp8 " + FormatPercent(*divergence_));
  if (memory_bytes_) figures.push_back(FormatBytes(static_cast<int64_t>(*memory_bytes_)));
  return figures;
}

std::string Progress::Line() const { return "step " + absl::StrJoin(Figures(), "  "); }

std::string Progress::Bar(const Terminal& terminal) const {
  const double share = steps_ > 0 ? static_cast<double>(step_) / static_cast<double>(steps_) : 0;
  std::string line =
      absl::StrFormat("%s %3d%%", DrawBar(terminal, share), static_cast<int>(share * 100));
  for (const std::string& figure : Figures()) {
    // A full line would wrap on some terminals.
    if (DisplayWidth(line) + 2 + DisplayWidth(figure) >= terminal.columns) break;
    absl::StrAppend(&line, "  ", figure);
  }
  return line;
}

}  // namespace octavo::client

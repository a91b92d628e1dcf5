// What a running job shows of itself, from its metric points. Pure: time comes with the points.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/render/terminal.h"
#include "octavo/v1/metric.pb.h"

namespace octavo::client {

class Progress {
 public:
  explicit Progress(int64_t steps) : steps_(steps) {}

  void Add(const v1::MetricPoint& point);

  int64_t steps() const { return steps_; }
  int64_t step() const { return step_; }  // newest; a restarted attempt may have taken it back
  // Until the last step, from the newest pace; checkpoints and probes are part of it. Infinite
  // before two steps are known.
  absl::Duration Remaining() const;

  // One line of at most `columns`: bar, step, loss, speed, time left, divergence, memory. What does
  // not fit is left out, from the right.
  std::string Bar(const Terminal& terminal) const;
  // The same figures without a bar, for logs.
  std::string Line() const;

 private:
  struct Tick {
    int64_t step;
    int64_t time_unix_ms;
  };
  std::vector<std::string> Figures() const;

  const int64_t steps_;
  int64_t step_ = 0;
  bool applied_ = true;  // else `loss_` is that of an earlier step
  std::optional<double> nonfinite_steps_;
  std::optional<double> loss_;
  std::optional<double> tokens_per_second_;
  std::optional<double> memory_bytes_;
  std::optional<double> divergence_;
  std::deque<Tick> ticks_;
};

}  // namespace octavo::client

// A measured figure as one line of JSON on standard output.
#pragma once

#include <optional>
#include <string>

namespace octavo::bench {

// What a figure is measured against, in the same run.
struct Baseline {
  std::string name;  // what was measured
  double value;      // in the figure's unit, above 0
};

struct Interval {
  double low;
  double high;
};

struct Figure {
  std::string name;  // e.g. "step/smollm2-135m/4x1024/fp8/tokens_per_second"
  double value;
  std::string unit;
  std::optional<Baseline> baseline = std::nullopt;
  std::optional<Interval> interval = std::nullopt;  // 95 % of where the true value lies
};

// The command line that the figures of this program stem from; called once, before any figure.
void SetCommand(int argc, const char* const* argv);

// Prints {"name", "value", "unit", "baseline", "baseline_value", "ratio", "command", "cpu"}, and
// "interval": [low, high] where there is one. The ratio is value / baseline_value; without a
// baseline these three are null.
void Print(const Figure& figure);

// "AMD EPYC, 2 cores: avx512_bf16": the processor's model, its cores and its best vector unit that
// matters to us.
std::string Processor();

}  // namespace octavo::bench

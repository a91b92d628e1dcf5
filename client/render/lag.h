// Two training curves of which one has fallen suddenly and the other falls later or has not yet.
//
// Some tasks are learnt in one jump, at a step that depends on the seed and on every rounding. Near
// it the losses of two equally good runs differ by the height of the fall, which says when each of
// them learnt, not what it costs to train one way or the other. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "client/render/plot.h"

namespace octavo::client {

struct Lag {
  double level;        // loss halfway between both curves where they are farthest apart
  int64_t mean_steps;  // a level counts as reached when the mean loss of so many steps is below it
  std::optional<double> reference_step;  // that reached it; at least one of the two did
  std::optional<double> candidate_step;
};

// Both curves by ascending step. There is a lag where
// - the means differ by at least 5 % of the reference's somewhere (the widest such place decides),
// - the curve that is ahead fell suddenly there: within a tenth of the steps by at least half of
// that
//   difference and twice as far as in the tenth before, and
// - the other reached the level at least a twentieth of the steps later, or not at all.
// So two curves that drift apart have none, however far, nor have two that fall together: a loss
// that falls ever more slowly never falls suddenly.
std::optional<Lag> FindLag(const std::vector<Point>& reference,
                           const std::vector<Point>& candidate);

}  // namespace octavo::client

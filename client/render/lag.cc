#include "client/render/lag.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace octavo::client {
namespace {

constexpr double kLeastGap = 0.05;    // of the reference's loss
constexpr double kFallShare = 0.5;    // of the gap, that the curve ahead falls by
constexpr double kFallGrowth = 2;     // against the fall in the steps before
constexpr double kFallSteps = 0.1;    // of the steps, within which it does
constexpr double kLeastLag = 0.05;    // of the steps
constexpr double kMeanSteps = 0.02;   // of the steps, that a mean is taken over
constexpr size_t kFewestPoints = 20;  // of a curve that can be judged

// Means over the points of the last `steps` steps, at each point that has so many behind it.
std::vector<Point> Means(const std::vector<Point>& curve, double steps) {
  std::vector<Point> means;
  double sum = 0;
  size_t first = 0;
  for (size_t i = 0; i < curve.size(); ++i) {
    sum += curve[i].y;
    for (; curve[first].x <= curve[i].x - steps; ++first) sum -= curve[first].y;
    if (curve[i].x - curve.front().x + 1 < steps) continue;
    means.push_back({curve[i].x, sum / static_cast<double>(i - first + 1)});
  }
  return means;
}

// A step that both curves have, with their means.
struct Place {
  double step;
  double reference;
  double candidate;
  double gap() const { return std::fabs(candidate - reference); }
};

std::optional<Place> WidestGap(const std::vector<Point>& reference,
                               const std::vector<Point>& candidate) {
  std::map<double, double> by_step;
  for (const Point& point : reference) by_step[point.x] = point.y;
  std::optional<Place> widest;
  for (const Point& point : candidate) {
    const auto found = by_step.find(point.x);
    if (found == by_step.end()) continue;
    const Place place = {point.x, found->second, point.y};
    if (!widest || place.gap() > widest->gap()) widest = place;
  }
  if (!widest || widest->gap() < kLeastGap * std::fabs(widest->reference)) return std::nullopt;
  return widest;
}

std::optional<double> FirstBelow(const std::vector<Point>& means, double level) {
  const auto found =
      std::find_if(means.begin(), means.end(), [&](const Point& p) { return p.y < level; });
  if (found == means.end()) return std::nullopt;
  return found->x;
}

// The mean at the last point up to `step`; the first one's before that.
double At(const std::vector<Point>& means, double step) {
  double value = means.front().y;
  for (const Point& point : means) {
    if (point.x > step) break;
    value = point.y;
  }
  return value;
}

bool FallsSuddenly(const std::vector<Point>& means, double step, double steps, double gap) {
  const double before = At(means, step - steps / 2);
  const double fall = before - At(means, step + steps / 2);
  const double fall_before = At(means, step - 1.5 * steps) - before;
  return fall >= kFallShare * gap && fall >= kFallGrowth * fall_before;
}

bool IsFinite(const std::vector<Point>& curve) {
  return std::all_of(curve.begin(), curve.end(), [](const Point& p) { return std::isfinite(p.y); });
}

}  // namespace

std::optional<Lag> FindLag(const std::vector<Point>& reference,
                           const std::vector<Point>& candidate) {
  if (std::min(reference.size(), candidate.size()) < kFewestPoints) return std::nullopt;
  if (!IsFinite(reference) || !IsFinite(candidate)) return std::nullopt;
  const double steps = std::min(reference.back().x, candidate.back().x);
  const double mean_steps = std::max(1.0, std::round(kMeanSteps * steps));
  const std::vector<Point> a = Means(reference, mean_steps);
  const std::vector<Point> b = Means(candidate, mean_steps);
  const std::optional<Place> widest = WidestGap(a, b);
  if (!widest) return std::nullopt;

  Lag lag = {.level = (widest->reference + widest->candidate) / 2,
             .mean_steps = static_cast<int64_t>(mean_steps),
             .reference_step = std::nullopt,
             .candidate_step = std::nullopt};
  lag.reference_step = FirstBelow(a, lag.level);
  lag.candidate_step = FirstBelow(b, lag.level);
  const bool reference_ahead = widest->reference < widest->candidate;
  const std::optional<double>& ahead = reference_ahead ? lag.reference_step : lag.candidate_step;
  const std::optional<double>& behind = reference_ahead ? lag.candidate_step : lag.reference_step;
  if (!ahead) return std::nullopt;
  if (!FallsSuddenly(reference_ahead ? a : b, *ahead, kFallSteps * steps, widest->gap())) {
    return std::nullopt;
  }
  if (behind && *behind - *ahead < kLeastLag * steps) return std::nullopt;
  return lag;
}

}  // namespace octavo::client

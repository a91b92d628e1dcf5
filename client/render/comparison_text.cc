// A comparison as text and as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/render/comparison.h"
#include "client/render/format.h"
#include "client/render/job_text.h"
#include "client/render/table.h"

namespace octavo::client {
namespace {

std::string RatioText(const Ratio& ratio) {
  return ratio.value ? FormatPercent(*ratio.value) : ratio.reason;
}

// A row of figures of both reports and of their relative difference.
class Rows {
 public:
  explicit Rows(const Comparison& comparison)
      : reference_(comparison.reference),
        candidate_(comparison.candidate),
        table_({{""},
                {absl::StrCat(RecipeOf(reference_), " ", reference_.id()), Align::kRight},
                {absl::StrCat(RecipeOf(candidate_), " ", candidate_.id()), Align::kRight},
                {"difference", Align::kRight}}) {}

  // `value` gives a figure of a job that has a report; nothing where the job has no such figure.
  template <typename Value, typename Format>
  void Add(const std::string& title, Value value, Format format) {
    const std::optional<double> a = Get(reference_, value);
    const std::optional<double> b = Get(candidate_, value);
    const bool ratio = a && b && *a != 0;
    table_.Add({title, a ? format(*a) : "-", b ? format(*b) : "-",
                ratio ? FormatPercent((*b - *a) / *a) : "-"});
  }

  void AddText(std::vector<std::string> cells) { table_.Add(std::move(cells)); }
  std::string Render() const { return table_.Render(); }

 private:
  template <typename Value>
  static std::optional<double> Get(const v1::Job& job, Value value) {
    if (!job.has_report()) return std::nullopt;
    return value(job.report());
  }

  const v1::Job& reference_;
  const v1::Job& candidate_;
  Table table_;
};

using Figure = std::optional<double>;

void AddLosses(Rows* rows) {
  rows->Add(
      "final training loss", [](auto& r) { return Figure(r.final_loss()); }, FormatLoss);
  rows->Add(
      "held-out loss, forward in BF16",
      [](auto& r) { return r.holdout().tokens() > 0 ? Figure(r.holdout().loss_bf16()) : Figure(); },
      FormatLoss);
  rows->Add(
      "held-out loss, forward in FP8",
      [](auto& r) {
        return r.holdout().has_loss_fp8() ? Figure(r.holdout().loss_fp8()) : Figure();
      },
      FormatLoss);
}

void AddSpeed(Rows* rows) {
  const auto bytes = [](double value) { return FormatBytes(static_cast<int64_t>(value)); };
  const auto whole = [](double value) { return FormatInteger(static_cast<int64_t>(value)); };
  rows->Add(
      "tokens/s", [](auto& r) { return Figure(r.tokens_per_second()); }, FormatCount);
  rows->Add(
      "peak memory", [](auto& r) { return Figure(r.peak_memory_bytes()); }, bytes);
  rows->Add(
      "GEMMs in FP8", [](auto& r) { return Figure(r.fp8_gemms()); }, whole);
  rows->Add(
      "GEMMs in BF16", [](auto& r) { return Figure(r.bf16_gemms()); }, whole);
  rows->Add(
      "steps", [](auto& r) { return Figure(r.steps()); }, whole);
}

std::string ExactMatchText(const v1::Job& job) {
  const v1::ExactMatch& match = job.report().exact_match();
  if (match.total() == 0) return "-";
  return absl::StrCat(match.correct(), " of ", match.total());
}

void AddExactMatch(const Comparison& comparison, Rows* rows) {
  const v1::ExactMatch& a = comparison.reference.report().exact_match();
  const v1::ExactMatch& b = comparison.candidate.report().exact_match();
  std::string points = "-";
  if (a.total() > 0 && b.total() > 0) {
    const double difference = static_cast<double>(b.correct()) / static_cast<double>(b.total()) -
                              static_cast<double>(a.correct()) / static_cast<double>(a.total());
    points = absl::StrCat(FormatPercent(difference), " points");
  }
  rows->AddText({"exact match", ExactMatchText(comparison.reference),
                 ExactMatchText(comparison.candidate), points});
}

// The two questions that must not be mixed up: they differ in which weights are measured.
std::string Answers(const Comparison& comparison) {
  Table table({{""}, {""}});
  table.Add({"FP8 arithmetic now (same weights)", RatioText(comparison.arithmetic)});
  table.Add({"FP8 training (exported weights, both in BF16)", RatioText(comparison.training)});
  table.Add({"training loss of the last step", RatioText(comparison.final_loss)});
  return "what FP8 costs, relative to BF16\n" + table.Render();
}

// "falls below 1.4300 at step 820 (bf16 job-b) and at step 2,217 (fp8 job-f)".
std::string LagText(const Comparison& comparison) {
  const Lag& lag = *comparison.lag;
  const auto when = [](const std::optional<double>& step, const v1::Job& job) {
    return absl::StrCat(
        step ? absl::StrCat("at step ", FormatInteger(static_cast<int64_t>(*step))) : "not yet",
        " (", RecipeOf(job), " ", job.id(), ")");
  };
  std::string text = absl::StrCat(
      "learnt suddenly, at different steps: the mean training loss of ", lag.mean_steps,
      " steps falls below ", FormatLoss(lag.level), "\n",
      when(lag.reference_step, comparison.reference), " and ",
      when(lag.candidate_step, comparison.candidate),
      ".\nUntil both have fallen, their losses differ by the height of the fall; that is when each "
      "learnt, not what FP8 costs.\nSuch a step varies with the seed: compare several seeds, ");
  const bool both = lag.reference_step && lag.candidate_step;
  return text + (both ? "or the ends alone.\n" : "and train the later one longer.\n");
}

std::string Plots(const Terminal& terminal, const Comparison& comparison) {
  Terminal plain = terminal;
  plain.columns = std::min(terminal.columns, 100);
  const auto title = [](const v1::Job& job) { return absl::StrCat(RecipeOf(job), " ", job.id()); };
  const Plot losses = {.title = "training loss",
                       .y_format = "%.3f",
                       .series = {{.name = title(comparison.reference),
                                   .color = Color::kBlue,
                                   .ascii = 'o',
                                   .points = comparison.reference_losses},
                                  {.name = title(comparison.candidate),
                                   .color = Color::kYellow,
                                   .ascii = '*',
                                   .points = comparison.candidate_losses}},
                       .height = 11};
  const Plot gap = {.title = "gap of the training loss, % of the reference",
                    .y_format = "%+.3f",
                    .series = {{.name = "difference at equal steps",
                                .color = Color::kRed,
                                .ascii = '*',
                                .points = comparison.gaps}},
                    .height = 7,
                    .zero_line = true};
  return RenderPlot(plain, losses) + "\n" + RenderPlot(plain, gap);
}

nlohmann::json RatioJson(const Ratio& ratio) {
  if (!ratio.value) return {{"value", nullptr}, {"reason", ratio.reason}};
  return {{"value", *ratio.value}};
}

nlohmann::json LagJson(const std::optional<Lag>& lag) {
  if (!lag) return nullptr;
  const auto step = [](const std::optional<double>& value) {
    return value ? nlohmann::json(*value) : nlohmann::json();
  };
  return {{"loss", lag->level},
          {"mean_steps", lag->mean_steps},
          {"reference_step", step(lag->reference_step)},
          {"candidate_step", step(lag->candidate_step)}};
}

nlohmann::json CurveJson(const std::vector<Point>& points) {
  nlohmann::json curve = nlohmann::json::array();
  for (const Point& point : points) curve.push_back({point.x, point.y});
  return curve;
}

}  // namespace

std::string RenderComparison(const Terminal& terminal, const Comparison& comparison) {
  Rows rows(comparison);
  AddLosses(&rows);
  AddExactMatch(comparison, &rows);
  AddSpeed(&rows);
  std::string text = absl::StrCat(rows.Render(), "\n", Answers(comparison));
  if (comparison.lag) absl::StrAppend(&text, "\n", LagText(comparison));
  if (!comparison.differences.empty()) {
    absl::StrAppend(&text, "\nthe jobs differ in more than the recipe:\n");
    for (const std::string& line : comparison.differences) absl::StrAppend(&text, "  ", line, "\n");
  }
  return absl::StrCat(text, "\n", Plots(terminal, comparison));
}

std::string ComparisonJson(const Comparison& comparison) {
  const nlohmann::json document = {
      {"reference", comparison.reference.id()},
      {"candidate", comparison.candidate.id()},
      {"final_loss_ratio", RatioJson(comparison.final_loss)},
      {"fp8_arithmetic_ratio", RatioJson(comparison.arithmetic)},
      {"fp8_training_ratio", RatioJson(comparison.training)},
      {"learnt_at_different_steps", LagJson(comparison.lag)},
      {"differences", comparison.differences},
      {"reference_loss_by_step", CurveJson(comparison.reference_losses)},
      {"candidate_loss_by_step", CurveJson(comparison.candidate_losses)},
      {"gap_percent_by_step", CurveJson(comparison.gaps)}};
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace octavo::client

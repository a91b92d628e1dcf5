#include "client/example/job_files.h"

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "proto/support/job_spec.h"

namespace octavo::client {
namespace {

// What learning a task takes, with a margin.
struct Budget {
  int64_t steps;
  int64_t warmup_steps;
  double learning_rate;
};

Budget BudgetOf(const Task& task) {
  const bool cipher = task.name == std::string("cipher");
  return cipher ? Budget{.steps = 400, .warmup_steps = 50, .learning_rate = 3e-3}
                : Budget{.steps = 2500, .warmup_steps = 100, .learning_rate = 2e-3};
}

constexpr int32_t kSequenceLength = 128;  // eight words of 16 tokens, or nine sums of 13 and a part
constexpr int32_t kMicroBatch = 8;
constexpr int64_t kProbeEverySteps = 25;
constexpr int64_t kHoldoutTokens = 16384;
constexpr int64_t kExactMatchRows = 500;
constexpr int32_t kAnswerTokens =
    10;  // an answer and the end of the document, with room for mistakes

}  // namespace

v1::JobSpec TaskJob(const Task& task, const std::string& folder, const std::string& recipe) {
  const Budget budget = BudgetOf(task);
  v1::JobSpec spec;
  spec.set_name(absl::StrCat(task.name, "-", recipe));
  spec.set_output_folder(folder + "/output");
  v1::Stage& stage = *spec.add_stages();
  stage.set_kind("cpt");
  stage.set_steps(budget.steps);
  stage.mutable_model()->set_folder(folder);
  stage.mutable_model()->set_initialisation("random");
  stage.mutable_data()->add_files(folder + "/train.txt");
  stage.mutable_data()->set_tokenizer("byte");
  stage.mutable_data()->set_document_separator("\n");
  stage.mutable_data()->set_sequence_length(kSequenceLength);
  stage.mutable_recipe()->set_name(recipe);
  stage.mutable_optimizer()->set_learning_rate(budget.learning_rate);
  stage.mutable_schedule()->set_warmup_steps(budget.warmup_steps);
  stage.mutable_batch()->set_micro_batch(kMicroBatch);
  stage.mutable_checkpoint()->set_every_steps(budget.steps / 4);
  stage.mutable_divergence()->set_probe_every_steps(kProbeEverySteps);
  stage.mutable_evaluation()->set_holdout_tokens(kHoldoutTokens);
  stage.mutable_evaluation()->set_exact_match_file(folder + "/heldout.jsonl");
  stage.mutable_evaluation()->set_exact_match_limit(kExactMatchRows);
  stage.mutable_evaluation()->set_exact_match_max_new_tokens(kAnswerTokens);
  return spec;
}

absl::Status WriteTaskJobs(const Task& task, const std::string& folder) {
  for (const std::string recipe : {"bf16", "fp8"}) {
    RETURN_IF_ERROR(WriteFileAtomically(
        absl::StrCat(folder, "/", recipe, ".yaml"),
        absl::StrCat(
            "# The same training in two recipes: bf16.yaml and fp8.yaml differ in name and "
            "recipe.name.\n",
            PrintJobSpec(TaskJob(task, folder, recipe)))));
  }
  return absl::OkStatus();
}

}  // namespace octavo::client

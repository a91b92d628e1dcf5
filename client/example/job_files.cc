#include "client/example/job_files.h"

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "proto/support/job_spec.h"

namespace octavo::client {
namespace {

// What the example costs: minutes on two cores, and enough steps for the model to learn to add.
struct Budget {
  int64_t steps = 2500;
  int64_t warmup_steps = 100;
  int32_t sequence_length = 128;  // nine sums of 13 tokens
  int32_t micro_batch = 8;
  double learning_rate = 2e-3;
  int64_t checkpoint_every_steps = 500;
  int64_t probe_every_steps = 25;
  int64_t holdout_tokens = 16384;
  int64_t exact_match_rows = 500;
  int32_t answer_tokens = 8;  // four digits and the end of the document, with room for mistakes
};

}  // namespace

v1::JobSpec ArithmeticJob(const std::string& folder, const std::string& recipe) {
  constexpr Budget kBudget;
  v1::JobSpec spec;
  spec.set_name("arithmetic-" + recipe);
  spec.set_output_folder(folder + "/output");
  v1::Stage& stage = *spec.add_stages();
  stage.set_kind("cpt");
  stage.set_steps(kBudget.steps);
  stage.mutable_model()->set_folder(folder);
  stage.mutable_model()->set_initialisation("random");
  stage.mutable_data()->add_files(folder + "/train.txt");
  stage.mutable_data()->set_tokenizer("byte");
  stage.mutable_data()->set_document_separator("\n");
  stage.mutable_data()->set_sequence_length(kBudget.sequence_length);
  stage.mutable_recipe()->set_name(recipe);
  stage.mutable_optimizer()->set_learning_rate(kBudget.learning_rate);
  stage.mutable_schedule()->set_warmup_steps(kBudget.warmup_steps);
  stage.mutable_batch()->set_micro_batch(kBudget.micro_batch);
  stage.mutable_checkpoint()->set_every_steps(kBudget.checkpoint_every_steps);
  stage.mutable_divergence()->set_probe_every_steps(kBudget.probe_every_steps);
  stage.mutable_evaluation()->set_holdout_tokens(kBudget.holdout_tokens);
  stage.mutable_evaluation()->set_exact_match_file(folder + "/heldout.jsonl");
  stage.mutable_evaluation()->set_exact_match_limit(kBudget.exact_match_rows);
  stage.mutable_evaluation()->set_exact_match_max_new_tokens(kBudget.answer_tokens);
  return spec;
}

absl::Status WriteArithmeticJobs(const std::string& folder) {
  for (const std::string recipe : {"bf16", "fp8"}) {
    RETURN_IF_ERROR(WriteFileAtomically(
        absl::StrCat(folder, "/", recipe, ".yaml"),
        absl::StrCat(
            "# The same training in two recipes: bf16.yaml and fp8.yaml differ in name and "
            "recipe.name.\n",
            PrintJobSpec(ArithmeticJob(folder, recipe)))));
  }
  return absl::OkStatus();
}

}  // namespace octavo::client

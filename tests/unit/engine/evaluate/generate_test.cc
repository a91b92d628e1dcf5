// Greedy continuations and exact match over a transformer whose next token is a rule.
#include "worker/engine/evaluate/generate.h"

#include "gmock/gmock.h"
#include "tests/support/temporary_folder.h"
#include "worker/engine/evaluate/exact_match.h"

namespace octavo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Predicts the token after x to be x + 1, and the end of the document (256) after '9'. Column 299
// is padding of the embedding and always the most probable.
class CountingTransformer final : public Transformer {
 public:
  absl::Status UpdateWeights(const Parameters&, int64_t) override { return absl::OkStatus(); }
  const PolicyTable& policy() const override { return policy_; }
  absl::StatusOr<LossSum> Evaluate(const Batch&, const PolicyTable&) override { return LossSum{}; }
  absl::Status Train(const Batch&, double, const Parameters&) override { return absl::OkStatus(); }
  StepRecord& step() override { return step_; }
  absl::StatusOr<std::vector<float>> Logits(const Batch& batch, const std::vector<int64_t>& indices,
                                            const PolicyTable& policy) override {
    EXPECT_FALSE(policy.any_fp8_forward());
    passes.push_back(batch);
    std::vector<float> logits(indices.size() * 300, 0.0f);
    for (size_t i = 0; i < indices.size(); ++i) {
      const int32_t token = batch.ids[static_cast<size_t>(indices[i])];
      logits[i * 300 + static_cast<size_t>(token == '9' ? 256 : token + 1)] = 1;
      logits[i * 300 + 299] = 2;
    }
    return logits;
  }
  std::vector<Batch> passes;

 private:
  StepRecord step_;
  const PolicyTable policy_ = PolicyTable({kFp8Policy});
};

GenerationOptions Options(int64_t pass_tokens, int64_t max_new_tokens) {
  return {.pass_tokens = pass_tokens,
          .max_new_tokens = max_new_tokens,
          .vocabulary = 257,
          .end_of_document = 256};
}

TEST(GenerateGreedily, StopsAtTheEndOfTheDocumentOrAtTheLimit) {
  CountingTransformer transformer;
  const auto continuations =
      GenerateGreedily({{'7'}, {'0', '1'}, {'9'}}, Options(100, 4), &transformer);
  ASSERT_TRUE(continuations.ok());
  EXPECT_THAT(*continuations,
              ElementsAre(ElementsAre('8', '9'), ElementsAre('2', '3', '4', '5'), ElementsAre()));
}

TEST(GenerateGreedily, PacksPromptsAsDocumentsOfOnePass) {
  CountingTransformer transformer;
  ASSERT_TRUE(GenerateGreedily({{'1', '2'}, {'3'}}, Options(100, 1), &transformer).ok());
  ASSERT_EQ(transformer.passes.size(), 1u);
  const Batch& batch = transformer.passes[0];
  EXPECT_EQ(batch.rows, 1);
  EXPECT_EQ(batch.sequence, 3);
  EXPECT_THAT(batch.ids, ElementsAre('1', '2', '3'));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 0));
  EXPECT_THAT(batch.attend_from, ElementsAre(0, 0, 2));
  EXPECT_THAT(batch.targets, ::testing::Each(kMasked));
}

TEST(GenerateGreedily, NeverExceedsOnePassesTokens) {
  CountingTransformer transformer;
  const std::vector<std::vector<int32_t>> prompts(7, {'0', '1', '2'});
  const auto continuations = GenerateGreedily(prompts, Options(10, 3), &transformer);
  ASSERT_TRUE(continuations.ok());
  EXPECT_THAT(*continuations, ::testing::Each(ElementsAre('3', '4', '5')));
  for (const Batch& batch : transformer.passes) EXPECT_LE(batch.tokens(), 10);
  EXPECT_EQ(transformer.passes.size(), 3u + 4u + 4u);
}

class ExactMatch : public ::testing::Test {
 protected:
  absl::StatusOr<ExactMatchSet> Read(const std::string& content) {
    spec_.exact_match_file = root_.Write("rows.jsonl", content);
    return ReadExactMatch(spec_, *tokenizer_, 40);
  }
  std::string ReadMessage(const std::string& content) {
    const auto set = Read(content);
    EXPECT_TRUE(absl::IsInvalidArgument(set.status())) << set.status();
    return std::string(set.status().message());
  }
  octavo::testing_support::TemporaryFolder root_;
  EvaluationSpec spec_;
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
};

TEST_F(ExactMatch, CountsWholeAnswersOnly) {
  const auto set = Read(
      "\xEF\xBB\xBF{\"prompt\": \"7\", \"answer\": \"89\"}\r\n\n"
      "{\"prompt\": \"6\", \"answer\": \"78\"}\n"
      "{\"prompt\": \"5\", \"answer\": \"6789x\"}\n"
      "{\"prompt\": \"9\", \"answer\": \"\", \"more\": 1}");
  ASSERT_TRUE(set.ok()) << set.status();
  CountingTransformer transformer;
  const auto report = EvaluateExactMatch(*set, Options(40, 32), *tokenizer_, &transformer);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->correct, 2);
  EXPECT_EQ(report->total, 4);
}

TEST_F(ExactMatch, UsesTheFirstRowsUpToTheLimit) {
  spec_.exact_match_limit = 2;
  std::string rows;
  for (int i = 0; i < 5; ++i) rows += "{\"prompt\": \"a\", \"answer\": \"b\"}\n";
  EXPECT_EQ(Read(rows + "broken")->prompts.size(), 2u);
}

TEST_F(ExactMatch, NamesTheLineThatIsWrong) {
  const std::string good = "{\"prompt\": \"a\", \"answer\": \"b\"}\n";
  EXPECT_THAT(ReadMessage(good + "{\"prompt\": \"a\"}"),
              AllOf(HasSubstr("rows.jsonl, line 2"), HasSubstr("\"answer\"")));
  EXPECT_THAT(ReadMessage(good + good + "[1"), HasSubstr("line 3"));
  EXPECT_THAT(ReadMessage("{\"prompt\": \"\", \"answer\": \"b\"}"), HasSubstr("prompt is empty"));
  EXPECT_THAT(ReadMessage("{\"prompt\": \"123456789\", \"answer\": \"b\"}"),
              AllOf(HasSubstr("9 tokens"), HasSubstr("32"), HasSubstr("40")));
  EXPECT_THAT(ReadMessage("\n\n"), HasSubstr("no rows"));
}

}  // namespace
}  // namespace octavo::engine

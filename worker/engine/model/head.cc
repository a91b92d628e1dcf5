#include "worker/engine/model/head.h"

#include <algorithm>

#include "base/status.h"
#include "worker/engine/model/sizes.h"

namespace octavo::engine {

using kernels::bfloat16;
using kernels::Layout;
using kernels::ResultType;

absl::StatusOr<Head> Head::Create(const ModelConfig& config, const ParameterIndex& parameters,
                                  int64_t max_tokens, kernels::Backend* backend) {
  Head head;
  head.vocabulary_ = config.shape.vocabulary;
  head.hidden_ = config.shape.hidden;
  head.chunk_rows_ = HeadRows(max_tokens, head.vocabulary_);
  ASSIGN_OR_RETURN(head.norm_,
                   Norm::Create("model.norm", parameters, config.rms_norm_epsilon, backend));
  ASSIGN_OR_RETURN(head.inverse_rms_, kernels::Buffer<float>::Create(backend, max_tokens));
  return head;
}

absl::Status Head::Loss(const Pass& pass, const Bfloat16Weight& weight, const bfloat16* x) {
  return ChunkedLoss(pass, weight, x, /*backward=*/false, /*gradient_scale=*/0);
}

absl::Status Head::LossAndGradient(const Pass& pass, const Bfloat16Weight& weight,
                                   const bfloat16* x, float gradient_scale, bfloat16* dx) {
  RETURN_IF_ERROR(ChunkedLoss(pass, weight, x, /*backward=*/true, gradient_scale));
  return pass.backend->Run(norm_.Backward(pass, {.dy = pass.workspace->normalised.data(),
                                                 .x = x,
                                                 .inverse_rms = inverse_rms_.data(),
                                                 .dx_add = nullptr,
                                                 .dx = dx,
                                                 .rows = pass.tokens}));
}

absl::Status Head::ChunkedLoss(const Pass& pass, const Bfloat16Weight& weight, const bfloat16* x,
                               bool backward, float gradient_scale) {
  const Workspace& workspace = *pass.workspace;
  RETURN_IF_ERROR(pass.backend->Run(norm_.Forward(pass, {.x = x,
                                                         .y = workspace.normalised.data(),
                                                         .inverse_rms = inverse_rms_.data(),
                                                         .rows = pass.tokens})));
  for (int64_t first = 0; first < pass.tokens; first += chunk_rows_) {
    const int64_t rows = std::min(chunk_rows_, pass.tokens - first);
    bfloat16* const normalised = workspace.normalised.data() + first * hidden_;
    RETURN_IF_ERROR(Multiply(pass, weight, normalised, rows));
    RETURN_IF_ERROR(pass.backend->Run(kernels::CrossEntropy{.logits = workspace.logits.data(),
                                                            .targets = pass.targets + first,
                                                            .loss = workspace.loss.data() + first,
                                                            .tokens = rows,
                                                            .vocabulary = vocabulary_,
                                                            .write_gradient = backward,
                                                            .gradient_scale = gradient_scale}));
    if (backward) RETURN_IF_ERROR(BackwardChunk(pass, weight, normalised, rows));
  }
  return absl::OkStatus();
}

absl::Status Head::Multiply(const Pass& pass, const Bfloat16Weight& weight,
                            const bfloat16* normalised, int64_t rows) const {
  return pass.backend->Run(kernels::GemmBf16{.a = normalised,
                                             .b = weight.data(),
                                             .a_layout = Layout::kNormal,
                                             .b_layout = Layout::kNormal,
                                             .m = rows,
                                             .n = vocabulary_,
                                             .k = hidden_,
                                             .bias = nullptr,
                                             .c = pass.workspace->logits.data(),
                                             .c_type = ResultType::kBfloat16,
                                             .accumulate = false});
}

absl::Status Head::BackwardChunk(const Pass& pass, const Bfloat16Weight& weight,
                                 bfloat16* normalised, int64_t rows) const {
  const bfloat16* const dlogits = pass.workspace->logits.data();
  RETURN_IF_ERROR(pass.backend->Run(kernels::GemmBf16{.a = dlogits,
                                                      .b = normalised,
                                                      .a_layout = Layout::kTransposed,
                                                      .b_layout = Layout::kTransposed,
                                                      .m = vocabulary_,
                                                      .n = hidden_,
                                                      .k = rows,
                                                      .bias = nullptr,
                                                      .c = pass.gradient + weight.offset(),
                                                      .c_type = ResultType::kFloat32,
                                                      .accumulate = true}));
  return pass.backend->Run(kernels::GemmBf16{.a = dlogits,
                                             .b = weight.data(),
                                             .a_layout = Layout::kNormal,
                                             .b_layout = Layout::kTransposed,
                                             .m = rows,
                                             .n = hidden_,
                                             .k = vocabulary_,
                                             .bias = nullptr,
                                             .c = normalised,
                                             .c_type = ResultType::kBfloat16,
                                             .accumulate = false});
}

absl::StatusOr<std::vector<float>> Head::Logits(const Pass& pass, const Bfloat16Weight& weight,
                                                const bfloat16* x,
                                                const std::vector<int64_t>& indices) {
  const Workspace& workspace = *pass.workspace;
  const int64_t row_bytes = hidden_ * static_cast<int64_t>(sizeof(bfloat16));
  const int64_t count = static_cast<int64_t>(indices.size());
  std::vector<float> result;
  result.reserve(count * vocabulary_);
  for (int64_t first = 0; first < count; first += chunk_rows_) {
    const int64_t rows = std::min(chunk_rows_, count - first);
    bfloat16* const gathered = workspace.residual_gradient.data();
    for (int64_t row = 0; row < rows; ++row) {
      RETURN_IF_ERROR(pass.backend->Run(kernels::Copy{.to = gathered + row * hidden_,
                                                      .from = x + indices[first + row] * hidden_,
                                                      .bytes = row_bytes}));
    }
    RETURN_IF_ERROR(pass.backend->Run(norm_.Forward(
        pass,
        {.x = gathered, .y = workspace.normalised.data(), .inverse_rms = nullptr, .rows = rows})));
    RETURN_IF_ERROR(Multiply(pass, weight, workspace.normalised.data(), rows));
    std::vector<bfloat16> logits(rows * vocabulary_);
    RETURN_IF_ERROR(pass.backend->CopyOut(logits.data(), workspace.logits.data(),
                                          rows * vocabulary_ * sizeof(bfloat16)));
    for (const bfloat16 value : logits) result.push_back(kernels::ToFloat(value));
  }
  return result;
}

}  // namespace octavo::engine

#include "kernels/backend.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/check.h"

namespace octavo::kernels {
namespace {

absl::Status NameWhatIsMissing(const std::string& backend, const Operation& operation,
                               absl::string_view detail) {
  return absl::UnimplementedError(absl::StrCat("backend \"", backend, "\" does not implement ",
                                               NameOf(operation), detail.empty() ? "" : ": ",
                                               detail));
}

}  // namespace

absl::Status Backend::Run(const Operation& operation) {
  RETURN_IF_ERROR(Check(operation));
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = Execute(operation);
  if (absl::IsUnimplemented(status))
    return NameWhatIsMissing(Describe().name, operation, status.message());
  RETURN_IF_ERROR(status);
  OperationTally& tally = tallies_[operation.index()];
  ++tally.runs;
  if (timed_) {
    RETURN_IF_ERROR(Synchronize());
    tally.seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (captured_ != nullptr) captured_->push_back(operation);
  return absl::OkStatus();
}

absl::Status Backend::Run(const Program& program) {
  for (const Operation& operation : program) RETURN_IF_ERROR(Run(operation));
  return absl::OkStatus();
}

GemmCounts Backend::gemm_counts() const {
  return {.fp8 = tallies_[Operation(GemmFp8{}).index()].runs,
          .bf16 = tallies_[Operation(GemmBf16{}).index()].runs};
}

}  // namespace octavo::kernels

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/commands/commands.h"
#include "client/example/job_files.h"
#include "client/example/task.h"
#include "client/render/format.h"

namespace octavo::client {
namespace {

// A folder that cannot be written is the user's to change, like a wrong argument.
absl::Status AsUsage(const absl::Status& status) {
  return status.ok() ? status : absl::InvalidArgumentError(status.message());
}

}  // namespace

Outcome Example(Context& context, const ExampleOptions& options) {
  std::error_code error;
  const std::string folder =
      std::filesystem::absolute(options.folder, error).lexically_normal().string();
  if (options.folder.empty() || error) {
    return absl::InvalidArgumentError(
        absl::StrCat("folder \"", options.folder, "\" has no absolute path; write another one"));
  }
  const auto task = std::find_if(Tasks().begin(), Tasks().end(), [&](const Task& candidate) {
    return candidate.name == options.task;
  });
  CHECK(task != Tasks().end());  // the command line offers no others
  RETURN_IF_ERROR(AsUsage(WriteTask(*task, folder, {.seed = options.seed})));
  RETURN_IF_ERROR(AsUsage(WriteTaskJobs(*task, folder)));
  if (context.json()) {
    const nlohmann::json document = {{"folder", folder},
                                     {"jobs", {folder + "/bf16.yaml", folder + "/fp8.yaml"}}};
    context.out() << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    context.out() << "wrote the " << task->name << " example into " << Printable(folder)
                  << "; train it by: octavo submit " << Printable(folder) << "/fp8.yaml --watch\n";
  }
  return ExitCode::kOk;
}

}  // namespace octavo::client

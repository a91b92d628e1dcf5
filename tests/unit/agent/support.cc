#include "tests/unit/agent/support.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace octavo::agent {

bool IsAlive(int process_id) {
  std::ifstream stat(absl::StrCat("/proc/", process_id, "/stat"));
  std::string line;
  if (!std::getline(stat, line)) return false;
  // "pid (name) state ..."; the name may hold anything, even parentheses.
  return line.compare(line.rfind(')') + 2, 1, "Z") != 0;
}

std::string FakeTrainer() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

v1::Assignment MakeAssignment(const std::string& behaviour, const std::string& job_id,
                              int64_t epoch) {
  v1::Assignment assignment;
  assignment.mutable_lease()->mutable_worker()->set_worker_id("worker-1");
  assignment.mutable_lease()->mutable_worker()->set_incarnation("0123456789abcdef");
  assignment.mutable_lease()->set_job_id(job_id);
  assignment.mutable_lease()->set_epoch(epoch);
  assignment.mutable_spec()->set_name(behaviour);
  assignment.mutable_spec()->mutable_resources()->set_device_kind("cpu");
  return assignment;
}

}  // namespace octavo::agent

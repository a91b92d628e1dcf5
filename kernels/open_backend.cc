#include <dlfcn.h>

#include <array>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/plugin.h"

namespace octavo::kernels {
namespace {

// The library stays loaded until the process ends: a backend's code must outlive it.
absl::StatusOr<std::unique_ptr<Backend>> OpenCudaPlugin(const BackendOptions& options) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::InternalError(absl::StrCat("reading /proc/self/exe: ", error.message()));
  const std::string path = (program.parent_path() / kCudaPluginName).string();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("backend \"cuda\" is absent: ", dlerror(),
                                            "; build it with the CUDA toolkit or use \"cpu\""));
  }
  const auto open = reinterpret_cast<PluginOpen>(dlsym(library, kCudaPluginSymbol));
  if (open == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("backend \"cuda\" is absent: ", path, " has no ", kCudaPluginSymbol));
  }
  std::array<char, 512> message{};
  std::unique_ptr<Backend> backend(open(kPluginVersion, &options, message.data(), message.size()));
  if (backend == nullptr)
    return absl::NotFoundError(absl::StrCat("backend \"cuda\" is absent: ", message.data()));
  return backend;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> OpenBackend(const std::string& name,
                                                     const BackendOptions& options) {
  if (name == "cpu") return cpu::OpenCpuBackend(options);
  if (name == "cuda") return OpenCudaPlugin(options);
  return absl::NotFoundError(
      absl::StrCat("there is no backend \"", name, "\"; there are \"cpu\" and \"cuda\""));
}

}  // namespace octavo::kernels

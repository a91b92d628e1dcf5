#include "worker/engine/checkpoint/safetensors_folder.h"

#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "base/strict_json.h"

namespace octavo::engine {
namespace {

constexpr int64_t kMaxIndexBytes = 100'000'000;

// Name of a file in the index's own folder; separators of other systems count too.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

absl::StatusOr<std::map<std::string, std::string>> WeightMap(const nlohmann::json& index,
                                                             const std::string& path) {
  const auto found = index.find("weight_map");
  if (found == index.end() || !found->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": weight_map is not an object of tensor names to files"));
  }
  if (found->empty()) return absl::InvalidArgumentError(path + ": weight_map names no tensor");
  std::map<std::string, std::string> map;
  for (const auto& [name, file] : found->items()) {
    if (!file.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor \"", name, "\": its file is not a string"));
    }
    const auto text = file.get<std::string>();
    if (!IsPlainFileName(text)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor \"", name, "\": \"", absl::Utf8SafeCEscape(text),
                       "\" is not the plain name of a file beside the index"));
    }
    map[name] = text;
  }
  return map;
}

// A wrong total is common and harmless.
void CheckTotalSize(const nlohmann::json& index, int64_t bytes, const std::string& path,
                    std::vector<std::string>* warnings) {
  const auto metadata = index.find("metadata");
  const bool has_total = metadata != index.end() && metadata->is_object() &&
                         metadata->contains("total_size") && (*metadata)["total_size"].is_number();
  if (!has_total) {
    warnings->push_back(absl::StrCat(path, ": metadata.total_size is missing"));
  } else if ((*metadata)["total_size"].get<double>() != static_cast<double>(bytes)) {
    warnings->push_back(absl::StrCat(path, ": metadata.total_size is ",
                                     (*metadata)["total_size"].dump(), ", the tensors have ", bytes,
                                     " bytes"));
  }
}

}  // namespace

absl::StatusOr<SafetensorsFolder> SafetensorsFolder::Open(const std::string& folder) {
  SafetensorsFolder result;
  const std::string single = folder + "/model.safetensors";
  const std::string index = folder + "/model.safetensors.index.json";
  std::error_code error;
  // symlink_status: a dangling link is there, and reported when it is opened.
  const bool has_single = std::filesystem::exists(std::filesystem::symlink_status(single, error));
  const bool has_index = std::filesystem::exists(std::filesystem::symlink_status(index, error));
  if (!has_single && !has_index) {
    return absl::NotFoundError(
        absl::StrCat(folder,
                     ": neither model.safetensors nor model.safetensors.index.json is there; other "
                     "formats are not read, convert them with Hugging Face's save_pretrained"));
  }
  if (has_single && has_index) {
    result.warnings_.push_back(absl::StrCat(
        folder, ": model.safetensors is used, model.safetensors.index.json is ignored"));
  }
  RETURN_IF_ERROR(has_single ? result.AddFile(single) : result.OpenShards(folder));
  return result;
}

absl::Status SafetensorsFolder::AddFile(const std::string& path) {
  ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(path));
  const SafetensorsFile& file = files_.emplace(path, std::move(opened)).first->second;
  for (const TensorEntry& entry : file.header().tensors) {
    const auto [where, added] = tensors_.emplace(entry.name, Tensor{&file, &entry});
    if (!added) {
      return absl::InvalidArgumentError(absl::StrCat("tensor \"", entry.name, "\" is both in ",
                                                     where->second.file->path(), " and in ", path));
    }
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFolder::OpenShards(const std::string& folder) {
  const std::string path = folder + "/model.safetensors.index.json";
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxIndexBytes));
  ASSIGN_OR_RETURN(const nlohmann::json index, ParseStrictJson(text, path));
  ASSIGN_OR_RETURN(const auto map, WeightMap(index, path));
  std::set<std::string> shards;
  for (const auto& [name, shard] : map) {
    if (!shards.insert(shard).second) continue;
    RETURN_IF_ERROR(Annotate(AddFile(absl::StrCat(folder, "/", shard)),
                             absl::StrCat("shard of tensor \"", name, "\" in ", path)));
  }
  for (const auto& [name, shard] : map) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() ||
        std::filesystem::path(found->second.file->path()).filename() != shard) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor \"", name, "\" is not in ", shard));
    }
  }
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors_) {
    if (map.count(name) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(tensor.file->path(), ": tensor \"", name, "\" is not listed in ", path));
    }
    bytes += tensor.entry->end - tensor.entry->begin;
  }
  CheckTotalSize(index, bytes, path, &warnings_);
  return absl::OkStatus();
}

}  // namespace octavo::engine

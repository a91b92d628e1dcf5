#include "worker/engine/checkpoint/training_state.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "base/status.h"
#include "base/strict_json.h"
#include "worker/engine/checkpoint/chunks.h"
#include "worker/engine/checkpoint/pending_folder.h"
#include "worker/engine/checkpoint/run_state_json.h"
#include "worker/engine/checkpoint/safetensors_writer.h"
#include "worker/engine/checkpoint/weights_import.h"

namespace octavo::engine {
namespace {

constexpr char kManifest[] = "manifest.json";
constexpr char kState[] = "state.json";
constexpr char kModelFolder[] = "model";
constexpr char kFormat[] = "octavo-checkpoint";
constexpr int64_t kFormatVersion = 2;
constexpr int64_t kMaxJsonBytes = 1 << 24;

// One of the flat arrays and the file it is stored in.
struct StoredArray {
  const char* file;
  float* data;
};

std::vector<StoredArray> StoredArrays(const Parameters& parameters) {
  return {{"master.safetensors", parameters.master()},
          {"exp_avg.safetensors", parameters.exp_avg()},
          {"exp_avg_sq.safetensors", parameters.exp_avg_sq()}};
}

absl::string_view BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

absl::StatusOr<WrittenFile> WriteArray(const PendingFolder& folder, const StoredArray& array,
                                       const ParameterLayout& layout, kernels::Backend* backend) {
  std::vector<TensorToWrite> tensors;
  for (const ParameterSpec& spec : layout.parameters) {
    const auto produce = [&array, &spec, backend](const TensorToWrite::Sink& write) {
      int64_t first = 0;
      return ReadChunks(backend, array.data + spec.offset, spec.count(),
                        [&](absl::Span<const float> piece) -> absl::Status {
                          RETURN_IF_ERROR(Annotate(CheckFinite(piece, first),
                                                   absl::StrCat(array.file, ": ", spec.name)));
                          first += static_cast<int64_t>(piece.size());
                          return write(BytesOf(piece));
                        });
    };
    tensors.push_back({.name = spec.name,
                       .type = TensorType::kF32,
                       .shape = {spec.rows, spec.columns},
                       .produce = produce});
  }
  return WriteSafetensors(folder, array.file, std::move(tensors));
}

std::string PrintManifest(std::vector<WrittenFile> files) {
  std::sort(files.begin(), files.end(),
            [](const WrittenFile& a, const WrittenFile& b) { return a.name < b.name; });
  nlohmann::ordered_json json = {{"format", kFormat}, {"format_version", kFormatVersion}};
  json["files"] = nlohmann::ordered_json::array();
  for (const WrittenFile& file : files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  return json.dump(2) + "\n";
}

absl::StatusOr<std::vector<WrittenFile>> ParseManifest(absl::string_view text,
                                                       const std::string& path) {
  const absl::Status broken =
      absl::DataLossError(absl::StrCat(path, ": not a manifest; the checkpoint is damaged"));
  const auto json = ParseStrictJson(text, path);
  // Compared as JSON: a value of another type is unequal too.
  if (!json.ok() || !json->contains("format") || (*json)["format"] != kFormat) return broken;
  if (!json->contains("format_version") || (*json)["format_version"] != kFormatVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": format_version is not ", kFormatVersion,
                     "; resume with the version of the program that wrote it"));
  }
  if (!json->contains("files") || !(*json)["files"].is_array()) return broken;
  std::vector<WrittenFile> files;
  for (const auto& file : (*json)["files"]) {
    const bool whole = file.is_object() && file.contains("name") && file["name"].is_string() &&
                       file.contains("bytes") && file["bytes"].is_number_unsigned() &&
                       file.contains("sha256") && file["sha256"].is_string();
    if (!whole) return broken;
    files.push_back({file["name"].get<std::string>(), file["bytes"].get<int64_t>(),
                     file["sha256"].get<std::string>()});
  }
  return files;
}

absl::Status VerifyFile(const std::string& path, const WrittenFile& expected) {
  const auto file = OpenFile::Open(path);
  if (!file.ok()) return absl::DataLossError(file.status().message());
  if (file->bytes() != expected.bytes) {
    return absl::DataLossError(absl::StrCat(path, ": has ", file->bytes(),
                                            " bytes, the manifest says ", expected.bytes,
                                            "; resume from another checkpoint"));
  }
  ASSIGN_OR_RETURN(const std::string sha256, file->Sha256());
  if (sha256 != expected.sha256) {
    return absl::DataLossError(
        absl::StrCat(path,
                     ": its SHA-256 is not the manifest's, bytes changed; resume from another "
                     "checkpoint"));
  }
  return absl::OkStatus();
}

// Every file that a checkpoint consists of is listed, so that each is verified, and none elsewhere.
absl::Status CheckListed(const std::vector<WrittenFile>& files, const std::string& path) {
  for (const WrittenFile& file : files) {
    absl::string_view name = file.name;
    absl::ConsumePrefix(&name, "model/");
    if (name.empty() || name == ".." || absl::StrContains(name, '/')) {
      return absl::DataLossError(absl::StrCat(path, ": lists \"", absl::Utf8SafeCEscape(file.name),
                                              "\", which is no file of a checkpoint"));
    }
  }
  for (const char* name : {kState, "master.safetensors", "exp_avg.safetensors",
                           "exp_avg_sq.safetensors", "model/config.json"}) {
    const bool listed = std::any_of(files.begin(), files.end(),
                                    [&](const WrittenFile& file) { return file.name == name; });
    if (!listed) return absl::DataLossError(absl::StrCat(path, ": does not list ", name));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<WrittenFile>> ReadManifest(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::NotFoundError(absl::StrCat("resuming: no checkpoint folder at ", folder));
  }
  const std::string path = absl::StrCat(folder, "/", kManifest);
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxJsonBytes);
  if (!text.ok()) return absl::DataLossError(text.status().message());
  ASSIGN_OR_RETURN(std::vector<WrittenFile> files, ParseManifest(*text, path));
  RETURN_IF_ERROR(CheckListed(files, path));
  return files;
}

absl::StatusOr<RunState> ReadListedState(const std::string& folder,
                                         const std::vector<WrittenFile>& files) {
  const std::string path = absl::StrCat(folder, "/", kState);
  for (const WrittenFile& file : files) {
    if (file.name == kState) RETURN_IF_ERROR(VerifyFile(path, file));
  }
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxJsonBytes);
  if (!text.ok()) return absl::DataLossError(text.status().message());
  return ParseRunState(*text, path);
}

}  // namespace

absl::StatusOr<std::string> SaveCheckpoint(const std::string& folder,
                                           const CheckpointContent& content,
                                           kernels::Backend* backend) {
  ASSIGN_OR_RETURN(PendingFolder pending, PendingFolder::Create(folder));
  std::vector<WrittenFile> files(1);
  ASSIGN_OR_RETURN(files[0], WritePendingFile(pending, kState, PrintRunState(*content.state)));
  RETURN_IF_ERROR(pending.MakeFolder(kModelFolder));
  for (const ModelFile& file : content.model->files()) {
    ASSIGN_OR_RETURN(
        WrittenFile written,
        WritePendingFile(pending, absl::StrCat(kModelFolder, "/", file.name), file.content));
    files.push_back(std::move(written));
  }
  for (const StoredArray& array : StoredArrays(*content.parameters)) {
    ASSIGN_OR_RETURN(WrittenFile file,
                     WriteArray(pending, array, content.parameters->layout(), backend));
    files.push_back(std::move(file));
  }
  ASSIGN_OR_RETURN(const WrittenFile manifest,
                   WritePendingFile(pending, kManifest, PrintManifest(std::move(files))));
  RETURN_IF_ERROR(pending.Publish());
  return manifest.sha256;
}

absl::StatusOr<RunState> ReadRunState(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<WrittenFile> files, ReadManifest(folder));
  return ReadListedState(folder, files);
}

// The state comes first: what it refuses needs no reading of whole weights.
absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<WrittenFile> files, ReadManifest(folder));
  CheckpointReader reader;
  reader.folder_ = folder;
  ASSIGN_OR_RETURN(reader.state_, ReadListedState(folder, files));
  for (const WrittenFile& file : files) {
    RETURN_IF_ERROR(VerifyFile(absl::StrCat(folder, "/", file.name), file));
  }
  return reader;
}

absl::Status CheckpointReader::Load(const Parameters& parameters, kernels::Backend* backend) const {
  for (const StoredArray& array : StoredArrays(parameters)) {
    ASSIGN_OR_RETURN(const SafetensorsFile file,
                     SafetensorsFile::Open(absl::StrCat(folder_, "/", array.file)));
    for (const ParameterSpec& spec : parameters.layout().parameters) {
      const TensorEntry* entry = file.Find(spec.name);
      if (entry == nullptr || entry->type != TensorType::kF32 ||
          entry->shape != std::vector<int64_t>{spec.rows, spec.columns}) {
        return absl::FailedPreconditionError(absl::StrCat(
            file.path(), ": tensor \"", spec.name, "\" is not there as F32 ",
            ShapeText({spec.rows, spec.columns}), "; the checkpoint is of another model"));
      }
      RETURN_IF_ERROR(WriteChunks(backend, array.data + spec.offset, spec.count(),
                                  [&](int64_t first, absl::Span<float> piece) {
                                    return DecodeTensor({&file, entry}, first, piece);
                                  }));
    }
  }
  return absl::OkStatus();
}

}  // namespace octavo::engine

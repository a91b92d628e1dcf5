// Tables of the store and their version.
#pragma once

#include "absl/status/status.h"
#include "server/storage/sqlite.h"

namespace octavo::storage {

inline constexpr int64_t kSchemaVersion = 1;

// Brings an empty or older file to kSchemaVersion, in one transaction.
absl::Status MigrateSchema(Database* database);

}  // namespace octavo::storage

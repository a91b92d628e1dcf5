#!/usr/bin/env bash
# Reads the code that holds threads and mutexes with clang's -Wthread-safety. Makes no objects: the commands are those of a
# configured build whose generated headers exist.
#
#   tests/thread_safety.sh [BUILD FOLDER]   default build/dev
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/dev}
[ -f "$build/compile_commands.json" ] || { echo "thread_safety.sh: $build is not configured" >&2; exit 2; }
command -v clang++ >/dev/null || { echo "thread_safety.sh: no clang++; apt-get install clang" >&2; exit 2; }

# Silence means something only if a mistake is found: a guarded member that is read without its mutex.
if printf '%s\n' '#include "absl/synchronization/mutex.h"' 'struct S { absl::Mutex m; int i ABSL_GUARDED_BY(m); int Get() { return i; } };' |
  clang++ -std=c++20 -x c++ -fsyntax-only -Wthread-safety -Werror - 2>/dev/null; then
  echo "thread_safety.sh: clang++ accepts a guarded member that is read without its mutex" >&2
  exit 1
fi

commands=$(sed -n 's/^  "command": "\(.*\)",$/\1/p' "$build/compile_commands.json" | sed 's/\\\(.\)/\1/g' |
  grep -E '/(worker/agent|worker/trainer|server|server/loop|server/rpc|server/storage|server/telemetry|client)/[^/ ]*\.cc$' | grep -v '/tests/' |
  sed -E 's|^[^ ]+ |clang++ |; s| -o [^ ]+ -c | -Wno-unknown-warning-option -Wthread-safety -fsyntax-only |')
cd "$build"
printf '%s\n' "$commands" | xargs -d '\n' -P "${OCTAVO_JOBS:-$(nproc)}" -n 1 sh -c
echo "thread safety: $(printf '%s\n' "$commands" | wc -l) files read"

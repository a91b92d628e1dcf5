#!/usr/bin/env bash
# Installs every distribution package that Octavo builds and tests with (Debian 12 and 13, Ubuntu 24.04). Does nothing, and needs no
# root, when they are all present.
#
#   deploy/install-dependencies.sh            install what is missing
#   deploy/install-dependencies.sh --list     print the packages and stop
#   deploy/install-dependencies.sh --runtime  only what built programs need to run, for containers
set -euo pipefail

# A shared library's package carries the library's version in its name, so the names differ between distributions.
set_runtime() {
  runtime=(libprometheus-cpp-core1.0 libprometheus-cpp-pull1.0 libsqlite3-0 libonig5 libzstd1 zlib1g libgomp1)
  local release
  release=$(. /etc/os-release && echo "${VERSION_CODENAME:-unnamed}")
  case "$release" in
    bookworm) runtime+=(libgrpc++1.51 libdnnl2 libhwy1 libicu72 libyaml-cpp0.7 libssl3) ;;
    trixie) runtime+=(libgrpc++1.51t64 libdnnl3.6 libhwy1t64 libicu76 libyaml-cpp0.8 libssl3t64) ;;
    noble) runtime+=(libgrpc++1.51t64 libdnnl3 libhwy1t64 libicu74 libyaml-cpp0.8 libssl3t64) ;;
    *)
      echo "install-dependencies.sh: the names of the runtime packages are known for the releases bookworm, trixie and" \
        "noble, not for '$release'; install the libraries that 'ldd' names on the built programs" >&2
      exit 1
      ;;
  esac
}
build=(
  g++ cmake ninja-build pkg-config mold ccache
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev prometheus-cpp-dev
  libsqlite3-dev libdnnl-dev libhwy-dev libicu-dev libonig-dev libyaml-cpp-dev nlohmann-json3-dev libcli11-dev
  libzstd-dev zlib1g-dev libssl-dev libgtest-dev libgmock-dev
)

packages=("${build[@]}")
case "${1:-}" in
  "") ;;
  --list) printf '%s\n' "${build[@]}"; exit 0 ;;
  --runtime)
    set_runtime
    packages=("${runtime[@]}")
    ;;
  *) echo "install-dependencies.sh: unknown argument '$1'; write nothing, --list or --runtime" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "install-dependencies.sh: this system has no dpkg; install the packages of --list in its own way" >&2
  exit 1
fi
missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "dependencies: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install-dependencies.sh: root is needed to install: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "dependencies: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
echo "dependencies: installed ${#missing[@]} packages"

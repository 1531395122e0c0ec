#!/usr/bin/env bash
# Installs what cento needs from the distribution's packages (Debian 12).
#   third_party/install-deps.sh [--build|--test|--arm]
# --build (default): what the program is built from.  --test: also what its tests and checks use.  --arm: a compiler and
# an emulator for arm64 (the libraries: arm64-root.sh).
# Does nothing, and needs no rights and no network, when everything is there.
set -euo pipefail

build=(g++ cmake ninja-build pkg-config libcli11-dev libsqlite3-dev libzstd-dev libsentencepiece-dev libpcre2-dev
       nlohmann-json3-dev libhwy-dev libsodium-dev libgumbo-dev libhiredis-dev libssl-dev)
tests=(catch2 clang-format git mandoc openssl python3 python3-pip redis-server)
arm=(g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)

case "${1:---build}" in
  --build) wanted=("${build[@]}") ;;
  --test) wanted=("${build[@]}" "${tests[@]}") ;;
  --arm) wanted=("${arm[@]}") ;;
  *) echo "usage: third_party/install-deps.sh [--build|--test|--arm]" >&2; exit 2 ;;
esac

missing=()
for package in "${wanted[@]}"; do
  [[ "$(dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2> /dev/null || true)" == ii* ]] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo > /dev/null; then
    printf 'error: these packages are missing: %s\n  try: install them as root, then run this again\n' "${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
  "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}
if ! install < /dev/null > "$log" 2>&1; then
  tail -n 20 "$log" >&2
  printf 'error: the packages could not be installed\n  try: apt-get install %s\n' "${missing[*]}" >&2
  exit 1
fi

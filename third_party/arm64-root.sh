#!/usr/bin/env bash
# The libraries of a cross build for arm64, unpacked into a folder.
#   third_party/arm64-root.sh FOLDER
# Package lists, packages and all go below FOLDER: this machine's own packages stay as they are, and no rights are
# needed. Does nothing, and needs no network, when everything is there.
set -euo pipefail
root=${1:?usage: third_party/arm64-root.sh FOLDER}
packages=(libhwy-dev libhwy1 libsodium-dev libsodium23 libsqlite3-dev libzstd-dev libsentencepiece-dev libpcre2-dev
          nlohmann-json3-dev libcli11-dev libgumbo-dev libhiredis-dev libhiredis0.14 libssl-dev libssl3 catch2)

[ "$(cat "$root/packages" 2> /dev/null || true)" = "${packages[*]}" ] && exit 0

mkdir -p "$root"
root=$(cd "$root" && pwd)
work=$(mktemp -d "$root/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/packages"
touch "$work/state/status"
apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State=$work/state"
     -o "Dir::State::status=$work/state/status" -o "Dir::Cache=$work/cache" -o "APT::Sandbox::User=$(id -un)"
     -o Acquire::Languages=none)
# Sources that have nothing for arm64, or are out of reach, do not matter as long as each package is found.
fetch() {
  "${apt[@]}" update || true
  (cd "$work/packages" && "${apt[@]}" download "${packages[@]}")
}
if ! fetch < /dev/null > "$work/log" 2>&1; then
  tail -n 20 "$work/log" >&2
  printf 'error: the libraries for arm64 could not be downloaded\n  try: check the network and the package sources\n' >&2
  exit 1
fi
for package in "$work"/packages/*.deb; do dpkg-deb -x "$package" "$root"; done
echo "${packages[*]}" > "$root/packages"

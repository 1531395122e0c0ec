#!/usr/bin/env bash
# From nothing to an answer: packages, build, a small real model, a sample handbook, its KV computed ahead of time, and
# one question answered twice, with stored KV and without. A second run does only what is new.
#   samples/demo.sh [QUESTION]
#   samples/demo.sh --fetch        only fetches the model, into the cache folder, where cento finds it
# Needs Debian 12 with python3 and pip; root or sudo if packages are missing. Everything it makes lies in build/ and in
# ${XDG_CACHE_HOME:-~/.cache}/cento.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$here/samples/lib.sh"

models=$cento_cache/models
store=$cento_cache/demo-store
build=${CENTO_DEMO_BUILD:-$here/build}

n_step=0
step() { n_step=$((n_step + 1)); printf '\n[%d/6] %s\n' "$n_step" "$*"; }

if [ "${1:-}" = --fetch ]; then
  echo "fetching SmolLM2-135M-Instruct into $models"
  fetch_smollm2 "$models"
  echo "there: $models/$smollm2_file"
  exit 0
fi
question=${1:-What is the speed limit on the quay?}

# The demo must not depend on, or touch, a person's own settings and store.
for name in $(compgen -e | grep '^CENTO_' || true); do unset "$name"; done
export XDG_CONFIG_HOME=$store/no-config
model=$models/$smollm2_file

step "packages: what the build needs, from the distribution"
"$here/third_party/install-deps.sh" --build

step "build: cento in $build"
configured_build "$here" "$build" -DCENTO_TESTS=OFF -DCENTO_WERROR=OFF > /dev/null ||
  fail "the build could not be configured" "remove $build and run this again"
cmake --build "$build" --target cento -j "$(nproc)" || fail "the build failed" "see the compiler's message above"
cento=$build/cento

step "model: SmolLM2-135M-Instruct (98 MB), kept in $models"
fetch_smollm2 "$models"

run() { "$cento" "$@" --store "$store" --model "$model"; }

step "index: samples/handbook, $(find "$here/samples/handbook" -type f | wc -l) documents of an invented harbour station"
run index "$here/samples/handbook" || fail "the handbook could not be indexed" "remove $store and run this again"

step "precompute: the KV of every chunk, kept on disk"
run precompute || fail "the KV could not be computed" "run this again; it goes on where it stopped"

step "query: \"$question\""
log=$(mktemp)
trap 'rm -f "$log"' EXIT
first_token() { sed -n 's/^time: first token after \([0-9]*\) ms.*/\1/p' "$log"; }
ask() {
  local status=0
  run query -v "$@" "$question" 2> "$log" || status=$?
  sed 's/^/    /' "$log"
  [ "$status" -eq 0 ] || [ "$status" -eq 6 ] || fail "the question could not be answered" "see the message above"
}
echo "--- with stored KV"
ask
blended=$(first_token)
echo
echo "--- the same by full prefill"
ask --prefill full
full=$(first_token)

if [ -n "$blended" ] && [ -n "$full" ] && [ "$blended" -gt 0 ]; then
  printf '\n%-28s %8s\n' "" "first token"
  printf '%-28s %8s ms\n' "stored KV, blended" "$blended"
  printf '%-28s %8s ms\n' "full prefill" "$full"
  printf '%-28s %8s\n' "" "$((full * 10 / blended / 10)).$((full * 10 / blended % 10)) times"
fi
printf '\nAsk your own: %s query --store %q --model %q "..."\n' "$cento" "$store" "$model"

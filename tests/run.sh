#!/usr/bin/env bash
# Everything from packages to a passed suite.
#   tests/run.sh [--slow] [--only STEP,...] [--skip STEP,...]
# Steps: packages model unit asan tsan cuda arm fuzz man format
#   unit   the suite, built with optimisation and warnings as errors; --slow adds the slow tests (real model, minutes)
#   asan   the same suite under AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan   the tests of code that uses threads, under ThreadSanitizer
#   cuda   the CUDA sources are compiled, where nvcc is there
#   arm    the compute level, cross-compiled for arm64 and run under an emulator, where packages for that can be had
#   fuzz   a minute of each fuzz driver, with the sanitizers
#   man    the manual pages, through mandoc
#   format clang-format
# Works from any folder, without stdin. Builds lie in build-test, build-asan and build-tsan beside the sources. Models for
# tests that want a real one are looked for in $CENTO_TEST_MODELS, by default where the model step puts its own.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$here"
source samples/lib.sh
exec < /dev/null

steps=(packages model unit asan tsan cuda arm fuzz man format)
slow=no
usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$here/tests/run.sh"
  exit "$1"
}
# chosen LIST: the words of the comma-separated LIST, which must all be steps
chosen() {
  local word
  for word in ${1//,/ }; do
    [[ " ${steps[*]} " == *" $word "* ]] || { echo "error: no step \"$word\"; there are: ${steps[*]}" >&2; exit 2; }
    echo "$word"
  done
}
wanted=("${steps[@]}")
while [ $# -gt 0 ]; do
  case "$1" in
    --slow) slow=yes ;;
    --only) words=$(chosen "${2:?}"); mapfile -t wanted <<< "$words"; shift ;;
    --skip)
      words=$(chosen "${2:?}")
      kept=()
      for s in "${wanted[@]}"; do [[ $'\n'"$words"$'\n' == *$'\n'"$s"$'\n'* ]] || kept+=("$s"); done
      wanted=("${kept[@]}")
      shift
      ;;
    -h | --help) usage 0 ;;
    *) usage 2 >&2 ;;
  esac
  shift
done

jobs=$(nproc)
export CENTO_TEST_MODELS=${CENTO_TEST_MODELS:-$cento_cache/models}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
n_passed=0
n_failed=0
failed_steps=()

# ctest_in BUILD [ARGUMENT...]: runs the tests of a build folder and adds up what passed and failed.
ctest_in() {
  local build=$1 status=0 summary
  shift
  ctest --test-dir "$build" -j "$jobs" --output-on-failure --no-tests=error "$@" > "$logs/ctest" 2>&1 || status=$?
  grep -vE '^ *[0-9]+/[0-9]+ Test .*Passed|^ +Start ' "$logs/ctest" || true
  summary=$(sed -nE 's/^[0-9]+% tests passed, ([0-9]+) tests? failed out of ([0-9]+)$/\1 \2/p' "$logs/ctest" | tail -n 1)
  [ -n "$summary" ] || return 1
  n_failed=$((n_failed + ${summary% *}))
  n_passed=$((n_passed + ${summary#* } - ${summary% *}))
  return "$status"
}

# built BUILD TARGET...: builds quietly; the compiler's messages are shown if it fails.
built() {
  local build=$1
  shift
  if ! cmake --build "$build" -j "$jobs" --target "$@" > "$logs/build" 2>&1; then
    grep -vE '^\[[0-9]+/[0-9]+\]' "$logs/build" | head -n 100
    return 1
  fi
}

configured() { configured_build "$here" "$@" > "$logs/configure" 2>&1 || { cat "$logs/configure"; return 1; }; }

step_packages() { third_party/install-deps.sh --test; }

step_model() { (fetch_smollm2 "$cento_cache/models"); }  # a failure in it ends the subshell only

step_unit() {
  configured build-test -DCMAKE_BUILD_TYPE=RelWithDebInfo || return 1
  built build-test all || return 1
  ctest_in build-test -LE slow || return 1
  if [ "$slow" = yes ]; then ctest_in build-test -L slow; fi
}

# Sanitized code is built with little optimisation and line numbers only: the compiler takes most of the time.
sanitized() { configured "$1" -DCMAKE_BUILD_TYPE=None "-DCMAKE_CXX_FLAGS=-O1 -g1" "-DCENTO_SANITIZE=$2" "${@:3}"; }

step_asan() {
  sanitized build-asan address,undefined -DCENTO_FUZZ=ON || return 1
  built build-asan all || return 1
  # The crash suite opens thousands of stores: it runs with --slow here, and always in step unit.
  local without=(-E ':(crash|damage|company): |held for (longer|a moment)|killed at')
  if [ "$slow" = yes ]; then without=(); fi
  ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 ctest_in build-asan -LE slow "${without[@]}"
}

step_tsan() {
  local test fixed=()
  # Shadow memory of GCC 12's runtime does not fit every layout of a randomised address space.
  if setarch "$(uname -m)" -R true 2> /dev/null; then fixed=(setarch "$(uname -m)" -R); fi
  sanitized build-tsan thread || return 1
  built build-tsan test_base test_blend || return 1
  for test in base blend; do
    TSAN_OPTIONS=halt_on_error=1 "${fixed[@]}" "build-tsan/tests/test_$test" '~[.slow]' || return 1
  done
}

step_cuda() {
  if ! compgen -G 'kernels/cuda/*.cu' > /dev/null; then
    echo "skipped: there are no CUDA sources yet"
    return 0
  fi
  if ! command -v nvcc > /dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
    echo "skipped: no nvcc on this machine"
    return 0
  fi
  PATH=$PATH:/usr/local/cuda/bin configured build-cuda -DCENTO_CUDA=ON -DCENTO_TESTS=OFF || return 1
  built build-cuda cento_compute
}

# An emulator is slow, and the kernels are what differs: the compute level alone.
step_arm() {
  local root=$cento_cache/arm64
  if ! third_party/install-deps.sh --arm > "$logs/arm" 2>&1 || ! third_party/arm64-root.sh "$root" >> "$logs/arm" 2>&1; then
    tail -n 5 "$logs/arm"
    echo "skipped: no compiler, emulator or libraries for arm64 on this machine"
    return 0
  fi
  configured build-arm -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS_NONE=-O2 \
    -DCMAKE_TOOLCHAIN_FILE=third_party/arm64.cmake "-DCENTO_ARM64_ROOT=$root" || return 1
  built build-arm test_compute || return 1
  REQUIRE_OPS=ref,NEON ctest_in build-arm -R '^compute:'
}

step_fuzz() {
  local drivers driver running=0 bad=0 pids=()
  sanitized build-asan address,undefined -DCENTO_FUZZ=ON || return 1
  drivers=$(cmake --build build-asan --target help | sed -nE 's/^(fuzz_[a-z0-9_]+): phony$/\1/p')
  [ -n "$drivers" ] || { echo "no fuzz drivers"; return 1; }
  # shellcheck disable=SC2086  # a list of words
  built build-asan $drivers || return 1
  for driver in $drivers; do
    mkdir -p "$logs/$driver"
    (cd "$logs/$driver" && exec "$here/build-asan/tests/$driver" - "${CENTO_FUZZ_SECONDS:-60}" > log 2>&1) &
    pids+=("$!")
    running=$((running + 1))
    if [ "$running" -ge "$jobs" ]; then
      wait -n || true
      running=$((running - 1))
    fi
  done
  local i=0
  for driver in $drivers; do
    if wait "${pids[$i]}"; then
      tail -n 1 "$logs/$driver/log"
    else
      bad=1
      echo "$driver found something:"
      tail -n 40 "$logs/$driver/log"
      [ -f "$logs/$driver/fuzz-finding.bin" ] && cp "$logs/$driver/fuzz-finding.bin" "build-asan/$driver-finding.bin" &&
        echo "its input: build-asan/$driver-finding.bin"
    fi
    i=$((i + 1))
  done
  return "$bad"
}

step_man() { mandoc -T lint -W warning man/*.[1-9]; }

step_format() {
  find src kernels tests \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
    xargs -0 clang-format --dry-run -Werror
}

for step in "${wanted[@]}"; do
  echo "== $step"
  started=$SECONDS
  before=$((n_passed + n_failed))
  failed_before=$n_failed
  if "step_$step"; then
    # Steps that are not counted by ctest count as one.
    [ $((n_passed + n_failed)) -gt "$before" ] || n_passed=$((n_passed + 1))
    echo "-- $step: passed in $((SECONDS - started)) s"
  else
    [ "$n_failed" -gt "$failed_before" ] || n_failed=$((n_failed + 1))
    failed_steps+=("$step")
    echo "-- $step: FAILED after $((SECONDS - started)) s"
  fi
done

echo
[ ${#failed_steps[@]} -eq 0 ] || echo "failed: ${failed_steps[*]}"
echo "$n_passed passed, $n_failed failed"
[ ${#failed_steps[@]} -eq 0 ]

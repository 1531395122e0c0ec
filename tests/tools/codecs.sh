#!/bin/bash
# Measures the tables of docs/STORE.md on codecs anew: tests/tools/codecs.sh MODELS DATA OUT [PART...]
#   MODELS  folder of the GGUF files (README, "Models")
#   DATA    folder with qa/ and docs/ (JSON Lines as in man cento-eval; documents)
#   OUT     results; a part that was stopped goes on where it was
#   PART    bytes (share, encode, decode), kl (exact reuse), blended; default: all. About an hour on two cores.
# CENTO names the program (default: cento in PATH), BENCH_BLOB the benchmark (default: bench_blob in PATH).
set -euo pipefail
if (($# < 3)); then
  sed -n '2,7s/^# //p' "$0" >&2
  exit 2
fi
models=$1 data=$2 out=$3
shift 3
(($# > 0)) || set -- bytes kl blended
cento=${CENTO:-cento}
bench_blob=${BENCH_BLOB:-bench_blob}
items=${ITEMS:-12}
names=(smollm2-135m-instruct-q4_1 qwen2.5-coder-0.5b-instruct-q4_k_m gemma3-270m-q4_k_m)
mkdir -p "$out"

# One passage an item, of about 650 tokens, out of the passages of a question: reuse where it stands is exact.
python3 - "$data" "$out/one.jsonl" "$items" <<'PY'
import json, pathlib, sys
data, out, items = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
names = ["hotpotqa", "musique", "2wikimultihopqa-short"]
with open(out, "w") as file:
    for i in range(items):
        lines = (data / "qa" / (names[i % len(names)] + ".jsonl")).read_text().splitlines()
        item = json.loads(lines[i // len(names)])
        text = "\n\n".join((p["title"] + "\n" + p["text"]).strip() for p in item["passages"])[:2600]
        item["passages"] = [{"title": "", "text": text, "gold": True}]
        file.write(json.dumps(item) + "\n")
PY

for part in "$@"; do
  for name in "${names[@]}"; do
    model=$models/$name.gguf
    [[ -e $model ]] || { echo "$name: skipped, there is no $model" >&2; continue; }
    case $part in
      bytes)
        store=$out/store-$name
        "$cento" index -q --store "$store" "$data/docs/flask/patterns" || (($? == 5))
        for codec in raw lossless int8 k8v4 int4; do
          "$cento" precompute -q --store "$store" --model "$model" --codec $codec --only '*a*.rst' --json |
            tee "$out/bytes-$name-$codec.json"
          [[ $codec != raw ]] || blob=$(find "$store/kv" -name '*.kv' -size +1M | sort | head -n 1)
          "$cento" cache status --store "$store" | grep -F "$codec" | tee "$out/share-$name-$codec.txt"
          [[ $codec != raw ]] || "$bench_blob" "$blob" | tee "$out/speed-$name.txt"
        done
        ;;
      kl)
        for precision in fast f32; do
          "$cento" eval "$out/one.jsonl" --model "$model" --precision $precision --out "$out/kl-$name-$precision" --policy none \
            --context prefix --codec lossless,int8,k8v4,int4 | tee "$out/kl-$name-$precision.txt"
        done
        ;;
      blended)
        "$cento" eval "$data/qa/hotpotqa.jsonl" --model "$model" --items "$items" --out "$out/blended-$name" --policy query \
          --ratio .15 --codec lossless,int8,k8v4,int4 --own-answer-tokens 0 | tee "$out/blended-$name.txt"
        ;;
      *)
        echo "no part $part" >&2
        exit 2
        ;;
    esac
  done
done

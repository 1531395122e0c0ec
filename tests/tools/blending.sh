#!/bin/bash
# Measures every figure of docs/BLENDING.md anew: tests/tools/blending.sh MODELS DATA OUT [PART...]
#   MODELS  folder of the GGUF files (README, "Models")
#   DATA    folder with qa/ summ/ docqa/ docs/ (JSON Lines as in man cento-eval; documents)
#   OUT     results; a part that was stopped goes on where it was
#   PART    qa, 6000, cross, docqa, orders, guard, check; default: all. Hours on two cores.
# CENTO names the program (default: cento in PATH).
set -euo pipefail
if (($# < 3)); then
  sed -n '2,7s/^# //p' "$0" >&2
  exit 2
fi
models=$1 data=$2 out=$3
shift 3
(($# > 0)) || set -- qa 6000 cross docqa orders guard check
cento=${CENTO:-cento}
here=$(cd "$(dirname "$0")" && pwd)
smollm2=$models/smollm2-135m-instruct-q4_1.gguf
gemma3=$models/gemma3-270m-q4_k_m.gguf
qwen=$models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
sets=("$data/qa/hotpotqa.jsonl" "$data/qa/musique.jsonl" "$data/qa/2wikimultihopqa-short.jsonl")
mkdir -p "$out"

# run NAME MODEL DATA... -- FLAG...: the table in OUT/NAME.txt, results.json and report.html in OUT/NAME.
run() {
  local name=$1 model=$2
  shift 2
  [[ -e $model ]] || { echo "$name: skipped, there is no $model" >&2; return 0; }
  "$cento" eval --model "$model" --out "$out/$name" "$@" | tee "$out/$name.txt"
}

for part in "$@"; do
  case $part in
    qa)
      run smollm2 "$smollm2" "${sets[@]}" "$data/summ/mts-dialog.jsonl" --items 30 \
        --policy query,dev-kv,hybrid,head-k --ratio .05,.15,.25 --context stand-in,prefix
      run smollm2-exact "$smollm2" "${sets[@]}" --items 30 --policy query --ratio .05,.15,.20,.25 --context exact-first
      run gemma3 "$gemma3" "${sets[@]:0:2}" --items 16 --policy query,dev-kv --ratio .15 --context stand-in,prefix
      run qwen "$qwen" "${sets[@]}" --items 14 --policy query,dev-kv --ratio .15 --context stand-in,prefix,exact-first
      ;;
    6000)
      run smollm2-6000 "$smollm2" "$data/qa/cacheblend-musique.jsonl" "$data/qa/cacheblend-2wikimqa.jsonl" --items 12 \
        --policy query,dev-kv --ratio .05,.1 --own-answer-tokens 0
      ;;
    cross)
      python3 "$here/make_cross_chunk.py" --items 60 --seed 1 --out "$out/cross.jsonl"
      run smollm2-cross "$smollm2" "$out/cross.jsonl" --policy query,dev-kv,hybrid --ratio .15,.25 --context stand-in,prefix
      run gemma3-cross "$gemma3" "$out/cross.jsonl" --items 30 --policy query,dev-kv --ratio .15
      run qwen-cross "$qwen" "$out/cross.jsonl" --items 20 --policy query,dev-kv --ratio .15,.25 --own-answer-tokens 0
      ;;
    docqa)
      "$cento" index -q --store "$out/store" "$data/docs"
      run smollm2-docqa "$smollm2" "$data/docqa/docs.jsonl" --store "$out/store" --policy query,dev-kv --ratio .15 \
        --context stand-in,exact-first,prefix || (($? == 5)) # a few items have no place in it, each named
      ;;
    orders)
      run smollm2-shuffled "$smollm2" "${sets[0]}" --items 20 --order shuffle --policy query,dev-kv --ratio .15
      run smollm2-reading "$smollm2" "$data/docqa/docs.jsonl" --store "$out/store" --order reading --policy query \
        --ratio .15 --context stand-in,exact-first || (($? == 5))
      ;;
    guard)
      for model in smollm2 gemma3 qwen; do
        run "$model-guard" "${!model}" "${sets[@]}" --items 14 --policy query --ratio .05,.15 \
          --context stand-in,prefix,exact-first --own-answer-tokens 0
      done
      python3 "$here/guard_quality.py" "$out"/*-guard/trials.jsonl | tee "$out/guard.txt"
      ;;
    check)
      for model in smollm2 gemma3 qwen; do
        [[ -e ${!model} ]] || continue
        "$cento" model check --store "$out/check" "${!model}" | tee "$out/$model-check.txt"
      done
      ;;
    *)
      echo "no part \"$part\"" >&2
      exit 2
      ;;
  esac
done

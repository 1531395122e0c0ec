#!/usr/bin/env python3
"""Answers the questions of a docqa file over a folder of documents, with `cento index`, `precompute` and `query --json`.

  tests/bench/docqa.py --cento build/cento --model FILE.gguf --docs shared/data/docs --questions shared/data/docqa/docs.jsonl
                       [--kind single] [--store DIR] [--no-precompute] [-- QUERY FLAGS]

An answer is right if it holds, as whole words and with case and white space folded, one alternative of every group; an item
without groups is right if nothing is found or the answer says that the documents do not say. Evidence: the evidence file is
among the first five sources. Prints one line an item and the two counts.
"""
import argparse, json, pathlib, re, subprocess, sys, tempfile


def fold(text):
    return re.sub(r"\s+", " ", text.casefold())


def holds(answer, alternative):
    return re.search(r"(?<!\w)" + re.escape(fold(alternative)) + r"(?!\w)", fold(answer)) is not None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cento", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--docs", required=True)
    parser.add_argument("--questions", required=True, type=pathlib.Path)
    parser.add_argument("--kind", default="single")
    parser.add_argument("--store")
    parser.add_argument("--no-precompute", action="store_true")
    parser.add_argument("flags", nargs="*", help="further flags of `cento query`")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = [arguments.cento, "--store", arguments.store or folder, "--model", arguments.model, "--no-progress"]

        def cento(*command, ok=(0,)):
            done = subprocess.run([*base, *command], capture_output=True, text=True)
            if done.returncode not in ok:
                sys.exit(f"cento {' '.join(command)}: exit {done.returncode}\n{done.stderr}")
            return done

        cento("index", arguments.docs, ok=(0, 5))
        if not arguments.no_precompute:
            cento("precompute", ok=(0, 5))
        right = found = both = total = 0
        for line in arguments.questions.open(encoding="utf-8"):
            item = json.loads(line)
            if item["kind"] != arguments.kind:
                continue
            turn = item["turns"][0]
            total += 1
            done = cento("query", turn["question"], "--json", *arguments.flags, ok=(0, 6))
            result = json.loads(done.stdout)
            sources = [c["source"] for c in result["citations"][:5]]
            if turn["answers"]:
                answered = all(any(holds(result["answer"], a) for a in group) for group in turn["answers"])
            else:
                answered = done.returncode == 6 or bool(re.search(r"do(es)? not (say|contain|mention|hold|provide)|not in the", fold(result["answer"])))
            evidence = any(s.endswith(e["file"]) for e in turn["evidence"] for s in sources) or not turn["evidence"]
            right += answered
            found += evidence
            both += answered and evidence
            print(f"{'right' if answered else 'wrong'}  {'found ' if evidence else 'missed'}  {result['cache']['mode']}  "
                  f"{result['timings']['ttft_ms']:.0f} ms  {turn['question']}  ->  {fold(result['answer'])[:160]!r}")
        print(f"{right} of {total} right, evidence among the first five sources in {found}, both in {both}")


main()

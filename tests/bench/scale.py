#!/usr/bin/env python3
"""Indexes a growing collection and says whether it slows down.

    tests/bench/scale.py CENTO [--chunks N] [--parts N]

Writes made-up documents, a folder for each part, and indexes them one after the other into one store; then asks for
words of them. Prints seconds and milliseconds a chunk for each part, and the time of a search. Needs no model.
"""
import argparse
import json
import pathlib
import random
import subprocess
import tempfile
import time

WORDS = [a + b for a in "ba ke lo mu ni po ra se ti vu".split() for b in "n r s l m t k d p g".split()]


def text_of(rng, n_chunks):
    """About n_chunks chunks: paragraphs under headings, words drawn from a fixed set and numbers that are unique."""
    out = []
    for i in range(n_chunks):
        words = " ".join(rng.choice(WORDS) + rng.choice(WORDS) for _ in range(90))
        out.append(f"## Part {i} number {rng.randrange(10**9)}\n\n{words}.\n")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cento")
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--parts", type=int, default=10)
    args = parser.parse_args()
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)

        def run(*words):
            started = time.monotonic()
            out = subprocess.run([args.cento, "--store", root / "store", "--json", *words], stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, check=True)
            return json.loads(out.stdout), time.monotonic() - started

        total = 0
        for part in range(args.parts):
            below = root / f"docs{part}"
            below.mkdir()
            for i in range(max(1, args.chunks // args.parts // 50)):
                (below / f"{i}.md").write_text(text_of(rng, 50))
            report, seconds = run("index", str(below))
            new = report["chunks"]["new"]
            total = report["chunks"]["total"]
            print(f"part {part}: {new} chunks in {seconds:.1f} s, {1000 * seconds / max(1, new):.3f} ms a chunk; {total} in all")
        report, seconds = run("index")
        print(f"nothing to do: {seconds:.2f} s for {report['files']['unchanged']} files")
        report, seconds = run("cache", "status")
        print(f"cache status: {seconds:.2f} s")


if __name__ == "__main__":
    main()

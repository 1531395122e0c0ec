#!/usr/bin/env python3
"""How far llama.cpp is from float32, at the positions and against the reference that bench_precision wrote.

  build/tests/bench/bench_precision MODEL.gguf shared/data/golden/MODEL.json --rows 16 --out rows.bin
  tests/bench/precision_peer.py --model MODEL.gguf --rows rows.bin --vocab V --llama-server PROGRAM [--threads 2]

llama-server is asked for the log-probabilities of the next token behind the same ids (/completion, n_probs). It lists the
--top most likely; the others' mass is taken as one event, on both sides, so that its KL is if anything too small. cento's
own KL at the same positions, over the whole vocabulary, is printed beside it.
Needs python3 only.
"""
import argparse, array, json, math, os, pathlib, signal, socket, statistics, subprocess, sys, time, urllib.request


def rows_of(path):
    with open(path, "rb") as file:
        while line := file.readline():
            head = json.loads(line)
            yield head, file


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def post(port, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def wait_for(port, process):
    for _ in range(600):
        if process.poll() is not None:
            sys.exit("llama-server ended; see its log")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    sys.exit("llama-server does not answer")


def kl_of_listed(reference, listed):
    """reference: log-probabilities [V]; listed: {id: log-probability}."""
    kl = inside_p = inside_q = 0.0
    for token, q in listed.items():
        p = reference[token]
        kl += math.exp(p) * (p - q)
        inside_p += math.exp(p)
        inside_q += math.exp(q)
    rest_p, rest_q = max(0.0, 1 - inside_p), max(1e-12, 1 - inside_q)
    if rest_p > 1e-12:
        kl += rest_p * math.log(rest_p / rest_q)
    return kl


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", required=True, type=pathlib.Path)
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--top", type=int, default=2000, help="tokens that llama-server lists")
    parser.add_argument("--vocab", type=int, required=True, help="size of the vocabulary: the length of a row")
    arguments = parser.parse_args()
    port = free_port()
    process = subprocess.Popen([arguments.llama_server, "-m", arguments.model, "--port", str(port), "-t", str(arguments.threads),
                                "-c", "4096", "-np", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, process)
        ours, theirs, left_out = [], [], 0
        for head, file in rows_of(arguments.rows):
            reference = array.array("f")
            reference.frombytes(file.read(4 * arguments.vocab))
            answer = post(port, "/completion", {"prompt": head["ids"], "n_predict": 1, "temperature": 0, "cache_prompt": True,
                                                "n_probs": arguments.top, "post_sampling_probs": False})
            if not answer.get("completion_probabilities"):  # it gives none where its choice ends the text
                left_out += 1
                continue
            listed = {t["id"]: t["logprob"] for t in answer["completion_probabilities"][0]["top_logprobs"]}
            ours.append(head["kl"])
            theirs.append(kl_of_listed(reference, listed))
        print(f"{len(ours)} positions, {left_out} left out; KL to float32, nats: cento mean {statistics.mean(ours):.2e} median {statistics.median(ours):.2e}; "
              f"llama.cpp mean {statistics.mean(theirs):.2e} median {statistics.median(theirs):.2e}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


if __name__ == "__main__":
    main()

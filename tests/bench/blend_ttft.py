#!/usr/bin/env python3
"""Time to first token of full, prefix, reuse and blended prefill on the same prompts, where it goes, and llama.cpp's.

  tests/bench/blend_ttft.py --binary build/cento --model FILE.gguf [--items 3] [--repeat 5]
      [--llama-server PROGRAM] [--threads 2] [--ratio 0.05] [--store FOLDER] [--json OUT]

Prompts are items of a question-answering set, whole (about 6,000 tokens with cacheblend-2wikimqa.jsonl) and cut to the
first passages that come nearest to 1,500. Their chunks' KV lies in a scratch store, computed behind the fixed prefix and a
stand-in context of passages of the following items, as blend_quality.py does it. All modes run in turn, once as a warm-up
and then --repeat times. TTFT is what `cento query --json` says: from the parsed question to the first token, the model
being loaded already.

Cold: before the run every file of the store is written out (fsync) and dropped from the page cache (posix_fadvise), and
mincore says that not a page of the blobs is left; after it the bytes that the process read from a disk (getrusage) have to
be at least those it loaded. Where either fails the cold rows are left out, and why is said.

llama-server prefills the same token ids (/completion with a list of ids, cache_prompt false, one token), with flash
attention on and off; the better one counts. Its own prompt_ms, and the time of the whole request. Needs python3 only.
"""
import argparse, ctypes, itertools, json, math, mmap, os, pathlib, platform, signal, socket, statistics, subprocess, sys, tempfile
import time, urllib.request

STAGES = ["retrieve_ms", "prepare_ms", "load_wait_ms", "probe_ms", "select_ms", "recompute_ms", "first_token_ms"]
LOADER = ["kv_load_ms", "kv_read_ms", "kv_unpack_ms", "kv_place_ms"]
SHORT_TOKENS = 1500


def text_of(passage):
    return (passage["title"] + "\n" if passage["title"] else "") + passage["text"]


def quartiles(values):
    ordered = sorted(values)

    def at(share):
        place = share * (len(ordered) - 1)
        low, high = math.floor(place), math.ceil(place)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return at(0.25), at(0.5), at(0.75)


def resident_pages(path):
    size = path.stat().st_size
    if size == 0:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    descriptor = os.open(path, os.O_RDONLY)
    try:
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap", str(path))
        pages = ctypes.create_string_buffer((size + mmap.PAGESIZE - 1) // mmap.PAGESIZE)
        failed = libc.mincore(address, size, pages)
        libc.munmap(address, size)
        if failed:
            raise OSError(ctypes.get_errno(), "mincore", str(path))
        return sum(page & 1 for page in pages.raw)
    finally:
        os.close(descriptor)


def make_cold(store):
    """Pages of blobs that are still in the page cache afterwards."""
    left = 0
    for path in sorted(p for p in store.rglob("*") if p.is_file()):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
        if path.suffix == ".kv":
            left += resident_pages(path)
    return left


class Cento:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.store = folder / "store"

    def query(self, prompt, flags):
        path = self.folder / "prompt.json"
        path.write_text(json.dumps(prompt), encoding="utf-8")
        command = [self.arguments.binary, "query", "--prompt", str(path), "--model", self.arguments.model, "--store",
                   str(self.store), "--threads", str(self.arguments.threads), "--keep", "--json", "--no-progress",
                   "--max-tokens", "1", *flags]
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            out = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                errors.seek(0)
                sys.exit(f"{' '.join(command)}\n{errors.read()}")
        result = json.loads(out)
        result["process"] = {"cpu_s": usage.ru_utime + usage.ru_stime, "disk_bytes": 512 * usage.ru_inblock}
        return result

    def tokens(self, text, special=False):
        command = [self.arguments.binary, "model", "tokenize", "-", "--json", "--model", self.arguments.model]
        command += ["--special"] if special else []
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        return json.loads(done.stdout)["ids"]


class LlamaServer:
    def __init__(self, arguments, flash):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        threads = str(arguments.threads)
        self.process = subprocess.Popen(
            [arguments.llama_server, "-m", arguments.model, "--host", "127.0.0.1", "--port", str(port), "-t", threads, "-tb",
             threads, "-c", "8192", "-np", "1", "-fa", flash],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"{arguments.llama_server} ended with status {self.process.returncode}")
            try:
                with urllib.request.urlopen(self.address + "/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.1)
        sys.exit(f"{arguments.llama_server} does not become ready")

    def post(self, path, body):
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=3600) as answer:
            return json.loads(answer.read())

    def prefill(self, ids):
        start = time.monotonic()
        result = self.post("/completion", {"prompt": ids, "n_predict": 1, "cache_prompt": False, "temperature": 0})
        wall_ms = 1000 * (time.monotonic() - start)
        timings = result["timings"]
        if timings["prompt_n"] != len(ids):
            sys.exit(f"llama-server prefilled {timings['prompt_n']} of {len(ids)} tokens")
        return {"prompt_ms": timings["prompt_ms"], "wall_ms": wall_ms}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def prompt_ids(cento, server, prompt):
    """The ids of fixed prefix, chunks and question: tokenised apart and joined, as cento does it (prompt_layout.cc)."""
    question = f"Question: {prompt['question'].strip()}\nAnswer from the passages above, in one or two sentences."
    rendered = server.post("/apply-template", {"messages": [
        {"role": "system", "content": prompt["system"]}, {"role": "user", "content": f"Passages:\n\n@@@{question}"}]})["prompt"]
    head, tail = rendered.split("@@@")
    ids = cento.tokens(head, special=True)
    for text in prompt["chunks"]:
        ids += cento.tokens(text.rstrip("\n ") + "\n\n")
    return ids + cento.tokens(tail, special=True)


def row(cells):
    print("| " + " | ".join(cells) + " |")


def report(name, runs, llama, ratio):
    tokens = statistics.fmean(r["usage"]["prompt_tokens"] for r in next(iter(runs.values())))
    print(f"\n{name}: {tokens:.0f} prompt tokens on average")
    row(["mode", "cache", "tokens exact / reused / recomputed / new", "charged", "TTFT ms median [quartiles]", "full / TTFT",
         *(["llama / TTFT"] if llama else []), "CPU s of the process"])
    print("|" + "---|" * (8 if llama else 7))

    def by_item(rows, value):
        items = {r["item"] for r in rows}
        return {item: statistics.median(value(r) for r in rows if r["item"] == item) for item in items}

    full = by_item(runs["full", "warm"], lambda r: r["timings"]["ttft_ms"])
    best = None
    if llama:
        medians = {flash: by_item(rows, lambda r: r["prompt_ms"]) for flash, rows in llama.items()}
        best = min(medians.values(), key=lambda m: sum(m.values()))
    ratios = {}
    for (mode, cache), results in runs.items():
        low, middle, high = quartiles([r["timings"]["ttft_ms"] for r in results])
        counts = [statistics.fmean(r["cache"]["tokens"][k] for r in results) for k in ("exact", "reused", "recomputed", "fresh")]
        charged = statistics.fmean(r["cache"]["charged"] for r in results)
        # Items differ in length: each run against the other program's median on the same item.
        against = [base and statistics.median(base[r["item"]] / r["timings"]["ttft_ms"] for r in results) for base in (full, best)]
        ratios[f"{mode}, {cache}"] = {"full": against[0], "llama": against[1]}
        row([mode, cache, " / ".join(f"{c:.0f}" for c in counts), f"{charged:.3f}", f"{middle:.0f} [{low:.0f}, {high:.0f}]",
             f"{against[0]:.1f}", *([f"{against[1]:.1f}"] if llama else []),
             f"{statistics.median(r['process']['cpu_s'] for r in results):.2f}"])
    if llama:
        for flash, rows in llama.items():
            low, middle, high = quartiles([r["prompt_ms"] for r in rows])
            wall = statistics.median(r["wall_ms"] for r in rows)
            print(f"llama-server, flash attention {flash}: prompt {middle:.0f} ms [{low:.0f}, {high:.0f}], request {wall:.0f} ms")
    print("\nWhere it goes (medians, ms). Stages follow one another; the loader works beside them; of it only load_wait is "
          "not hidden.")
    row(["mode", "cache", *(s[:-3] for s in STAGES), "sum / TTFT", *(f"({s[:-3]})" for s in LOADER), "load_wait / TTFT", "MB loaded"])
    print("|" + "---|" * (len(STAGES) + len(LOADER) + 5))
    for (mode, cache), results in runs.items():
        timings = [r["timings"] for r in results]
        ttft = statistics.median(t["ttft_ms"] for t in timings)
        share = statistics.median(sum(t[s] for s in STAGES) / t["ttft_ms"] for t in timings)
        wait = statistics.median(t["load_wait_ms"] / t["ttft_ms"] for t in timings)
        row([mode, cache, *(f"{statistics.median(t[s] for t in timings):.1f}" for s in STAGES), f"{100 * share:.1f} %",
             *(f"{statistics.median(t[s] for t in timings):.1f}" for s in LOADER), f"{100 * wait:.1f} %",
             f"{statistics.median(r['cache']['bytes_loaded'] for r in results) / 1e6:.0f}"])
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("shared/data/qa/cacheblend-2wikimqa.jsonl"))
    parser.add_argument("--store", type=pathlib.Path, help="folder for the scratch store, on the disk to be measured")
    parser.add_argument("--items", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--sizes", default="long,short", help="of: long, short")
    parser.add_argument("--llama-server")
    parser.add_argument("--llama-repeat", type=int, default=1, help="runs an item and kind of attention")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--ratio", type=float, default=0.05)
    parser.add_argument("--json", type=pathlib.Path, help="write every run here, one a line, and the summary last")
    arguments = parser.parse_args()
    items = [json.loads(line) for line in arguments.data.open(encoding="utf-8")]
    modes = [("full", ["--prefill", "full"]), ("prefix", ["--prefill", "prefix"]), ("reuse", ["--prefill", "reuse"]),
             (f"blend r={arguments.ratio}", ["--prefill", "blend", "--ratio", str(arguments.ratio)]),
             ("blend default", ["--prefill", "blend"])]
    cases = [(mode, "warm", flags) for mode, flags in modes] + [(mode, "cold", flags) for mode, flags in modes[2:]]

    version = subprocess.run([arguments.binary, "--version"], capture_output=True, text=True).stdout.strip()
    commit = subprocess.run(["git", "-C", str(pathlib.Path(__file__).parent), "describe", "--always", "--dirty"],
                            capture_output=True, text=True).stdout.strip()
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    print(f"{cpu}, {os.cpu_count()} cores, {platform.system()} {platform.release()}; commit {commit or 'unknown'}; {version}")
    print(f"{pathlib.Path(arguments.model).name}, {arguments.data.name}, {arguments.items} items, {arguments.repeat} runs each after one "
          f"warm-up, {arguments.threads} threads, greedy; load average {os.getloadavg()[0]:.2f} at the start")
    log = arguments.json.open("w", encoding="utf-8") if arguments.json else None
    servers = {}
    summary = {"commit": commit, "cpu": cpu, "threads": arguments.threads, "model": pathlib.Path(arguments.model).name}
    not_cold = set()
    try:
        if arguments.llama_server:
            servers = {flash: LlamaServer(arguments, flash) for flash in ("on", "off")}
        with tempfile.TemporaryDirectory(dir=arguments.store) as folder:
            cento = Cento(arguments, pathlib.Path(folder))
            for size in arguments.sizes.split(","):
                runs = {(mode, cache): [] for mode, cache, _ in cases}
                llama = {flash: [] for flash in servers}
                for index, item in enumerate(items[: arguments.items]):
                    passages = [text_of(p) for p in item["passages"]]
                    following = [items[(index + 1 + k) % len(items)] for k in range(2)]
                    prompt = {"system": "Answer the question from the passages.", "question": item["question"], "chunks": passages,
                              "stand_in": [text_of(p) for other in following for p in other["passages"]]}
                    if size == "short":
                        totals = list(itertools.accumulate(len(cento.tokens(p)) for p in passages))
                        prompt["chunks"] = passages[: 1 + min(range(len(totals)), key=lambda n: abs(totals[n] - SHORT_TOKENS))]
                    cento.query(prompt, ["--prefill", "reuse"])  # computes and keeps the chunks' KV
                    for repeat in range(arguments.repeat + 1):
                        for mode, cache, flags in cases:
                            pages_left = make_cold(cento.store) if cache == "cold" else 0
                            result = cento.query(prompt, flags)
                            if cache == "cold" and pages_left > 0:
                                not_cold.add(f"{pages_left} pages of blobs stayed in the page cache")
                            if cache == "cold" and result["process"]["disk_bytes"] < result["cache"]["bytes_loaded"]:
                                not_cold.add("less was read from the disk than was loaded")
                            if "precompute_ms" in result["timings"]:
                                sys.exit("stored KV was not found again: " + json.dumps(result["cache"]))
                            if repeat == 0:
                                continue
                            result["item"] = item["id"]
                            runs[mode, cache].append(result)
                            if log:
                                log.write(json.dumps({"size": size, "mode": mode, "page_cache": cache, **result}) + "\n")
                        print(f"\r{size}, item {index + 1} of {arguments.items}, run {repeat} of {arguments.repeat} ", end="",
                              file=sys.stderr, flush=True)
                    if servers:
                        ids = prompt_ids(cento, servers["on"], prompt)
                        expected = runs["full", "warm"][-1]["usage"]["prompt_tokens"]
                        if len(ids) != expected:
                            sys.exit(f"the prompt for llama-server has {len(ids)} tokens, cento's {expected}")
                        for _ in range(arguments.llama_repeat):
                            for flash, server in servers.items():
                                llama[flash].append({"item": item["id"], **server.prefill(ids)})
                                if log:
                                    log.write(json.dumps({"size": size, "mode": "llama-server", "flash": flash,
                                                          **llama[flash][-1]}) + "\n")
                print(file=sys.stderr)
                if not_cold:
                    runs = {key: value for key, value in runs.items() if key[1] == "warm"}
                    print("no cold rows: " + "; ".join(sorted(not_cold)))
                summary[size] = report(f"{size} prompts", runs, llama, arguments.ratio)
    finally:
        for server in servers.values():
            server.stop()
    print(f"\nload average {os.getloadavg()[0]:.2f} at the end")
    if log:
        log.write(json.dumps({"summary": summary}) + "\n")


main()

#!/usr/bin/env python3
"""How well the guard of `cento model check` would do on sets that it was not fitted on.

    guard_quality.py OUT/trials.jsonl...

Reads journals of `cento eval` (one model each), takes the trials of policy query, fits the logistic model of
src/eval/logistic.cc on all sets but one and judges the answers of that one. An answer is bad if its mean KL to full
prefill is above 0.1. The limit is set on the sets that the model was fitted on, so that 5 % of their good answers are
above it. Standard library only.
"""
import json
import math
import sys

BAD_KL = 0.1
FALSE_ALARMS = 0.05
RIDGE = 1.0


def features(residual):
    def log_of(x):
        return math.log(max(x, 1e-9))

    return [residual["unselected"], residual["entropy"], residual["chunk_mass"], log_of(residual["moved"]),
            log_of(residual["shift"]), residual["open"]]


def read(path):
    trials = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            trial = json.loads(line)
            if "residual" not in trial or not trial["setting"].startswith("query"):
                continue
            kl = sum(trial["kl"]) / len(trial["kl"])
            trials.append({"set": trial["set"], "setting": trial["setting"], "x": features(trial["residual"]),
                           "bad": kl > BAD_KL, "kl": kl})
    return trials


def solve(a, b):
    """a x = b for a small symmetric positive definite a."""
    n = len(b)
    rows = [a[i][:] + [b[i]] for i in range(n)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, n):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i])]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (rows[i][n] - sum(rows[i][j] * x[j] for j in range(i + 1, n))) / rows[i][i]
    return x


def fit(trials):
    """Logistic regression with a ridge penalty on standardised features; returns a function x -> score."""
    n, c = len(trials), len(trials[0]["x"])
    centre = [sum(t["x"][j] for t in trials) / n for j in range(c)]
    spread = [math.sqrt(sum((t["x"][j] - centre[j]) ** 2 for t in trials) / n) or 1.0 for j in range(c)]

    def row(x):
        return [1.0] + [(x[j] - centre[j]) / spread[j] for j in range(c)]

    rows, w = [row(t["x"]) for t in trials], [0.0] * (c + 1)
    for _ in range(30):
        gradient = [0.0] + [-RIDGE * v for v in w[1:]]
        hessian = [[RIDGE if i == j and i > 0 else 0.0 for j in range(c + 1)] for i in range(c + 1)]
        for z, t in zip(rows, trials):
            p = 1 / (1 + math.exp(-sum(a * b for a, b in zip(w, z))))
            for i in range(c + 1):
                gradient[i] += (t["bad"] - p) * z[i]
                for j in range(c + 1):
                    hessian[i][j] += p * (1 - p) * z[i] * z[j]
        step = solve(hessian, gradient)
        w = [a + b for a, b in zip(w, step)]
        if max(map(abs, step)) < 1e-9:
            break
    return lambda x: sum(a * b for a, b in zip(w, row(x)))


def auc(scores, bad):
    above = [s for s, b in zip(scores, bad) if b]
    below = [s for s, b in zip(scores, bad) if not b]
    if not above or not below:
        return None
    return sum((a > b) + 0.5 * (a == b) for a in above for b in below) / (len(above) * len(below))


def share(hits, of):
    return f"{hits} of {of}"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for path in sys.argv[1:]:
        trials = read(path)
        print(path)
        for held in sorted({t["set"] for t in trials}):
            rest = [t for t in trials if t["set"] != held]
            judged = [t for t in trials if t["set"] == held]
            if not any(t["bad"] for t in rest) or all(t["bad"] for t in rest):
                print(f"  {held}: the other sets have answers of one kind only")
                continue
            score = fit(rest)
            good = sorted((score(t["x"]) for t in rest if not t["bad"]), reverse=True)
            limit = good[int(FALSE_ALARMS * len(good))]
            value = auc([score(t["x"]) for t in judged], [t["bad"] for t in judged])
            found = sum(score(t["x"]) > limit for t in judged if t["bad"])
            alarms = sum(score(t["x"]) > limit for t in judged if not t["bad"])
            n_bad = sum(t["bad"] for t in judged)
            print(f"  {held}: AUC {'-' if value is None else f'{value:.2f}'}, found {share(found, n_bad)}, "
                  f"false alarms {share(alarms, len(judged) - n_bad)}")


if __name__ == "__main__":
    main()

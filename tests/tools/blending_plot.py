#!/usr/bin/env python3
"""The plot of README: KL to full prefill against the charged budget, from journals of `cento eval`.

    blending_plot.py OUT.svg trials.jsonl... -- "query exact-first=cento, exact first chunk" "dev-kv prefix=CacheBlend" ...

Each line is "POLICY CONTEXT=LABEL"; its points are the ratios that were measured, behind plain reuse of the same context
where that was. Only prompts that have every setting drawn count. Intervals are 95 % bootstrap, seed 1. Standard library
only.
"""
import json
import math
import random
import sys
from html import escape

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 235, 30, 55
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#555555"]  # told apart by most colour-blind people too


def read(paths):
    """{setting: {prompt: (charged, KL)}}"""
    settings = {}
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                t = json.loads(line)
                kl = sum(t["kl"]) / len(t["kl"])
                settings.setdefault(t["setting"], {})[(t["set"], t["item"])] = (t["charged"], kl)
    return settings


def points_of(settings, policy, context):
    """Names of the settings of a line, in order of the ratio."""
    names = [n for n in settings if n.startswith(policy + " r=") and n.endswith(" " + context)]
    floor = "none " + ("stand-in" if context == "exact-first" else context)
    return ([floor] if floor in settings else []) + sorted(names, key=lambda n: float(n.split("r=")[1].split()[0]))


def mean(values):
    return sum(values) / len(values)


def interval(values, rng):
    means = sorted(mean([rng.choice(values) for _ in values]) for _ in range(2000))
    return means[50], means[1949]


def main():
    if "--" not in sys.argv or len(sys.argv) < 5:
        sys.exit(__doc__)
    split = sys.argv.index("--")
    out, journals, wanted = sys.argv[1], sys.argv[2:split], sys.argv[split + 1:]
    settings = read(journals)
    lines = []
    for text in wanted:
        key, _, label = text.partition("=")
        policy, context = key.split()
        lines.append((label, points_of(settings, policy, context)))
    drawn = {name for _, names in lines for name in names}
    prompts = set.intersection(*(set(settings[name]) for name in drawn))
    rng = random.Random(1)
    low, high = 0.01, 0.25
    right = 0.35

    def x(charged):
        return LEFT + (WIDTH - LEFT - RIGHT) * charged / right

    def y(kl):
        kl = min(max(kl, low), high)
        return TOP + (HEIGHT - TOP - BOTTOM) * (math.log(high) - math.log(kl)) / (math.log(high) - math.log(low))

    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    for kl in (0.01, 0.02, 0.05, 0.1, 0.2):
        svg.append(f'<path d="M{LEFT} {y(kl):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>'
                   f'<text x="{LEFT - 8}" y="{y(kl) + 4:.1f}" text-anchor="end">{kl:g}</text>')
    for charged in (0, 0.1, 0.2, 0.3):
        svg.append(f'<text x="{x(charged):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{charged:g}</text>')
    svg.append(f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#333333"/>')
    svg.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">'
               "computed, share of full prefill (charged)</text>")
    svg.append(f'<text transform="translate(18 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" text-anchor="middle">'
               f"KL to full prefill, nats ({len(prompts)} prompts)</text>")
    labels = []
    for (label, names), colour in zip(lines, COLOURS):
        path = []
        for name in names:
            values = [settings[name][p] for p in sorted(prompts)]
            charged, kls = mean([v[0] for v in values]), [v[1] for v in values]
            below, above = interval(kls, rng)
            path.append((x(charged), y(mean(kls))))
            svg.append(f'<path d="M{path[-1][0]:.1f} {y(below):.1f}V{y(above):.1f}" stroke="{colour}" opacity=".5"/>'
                       f'<circle cx="{path[-1][0]:.1f}" cy="{path[-1][1]:.1f}" r="4" fill="{colour}"/>')
        joined = "L".join(f"{a:.1f} {b:.1f}" for a, b in path)
        svg.append(f'<path d="M{joined}" fill="none" stroke="{colour}" stroke-width="2"/>')
        labels.append([path[-1][1] + 4, label, colour])
    labels.sort()
    for i, (at, label, colour) in enumerate(labels):
        at = max(at, labels[i - 1][0] + 17) if i > 0 else at
        labels[i][0] = at
        svg.append(f'<text x="{WIDTH - RIGHT + 12}" y="{at:.1f}" fill="{colour}">{escape(label)}</text>')
    svg.append("</svg>")
    with open(out, "w", encoding="utf-8") as file:
        file.write("\n".join(svg) + "\n")


if __name__ == "__main__":
    main()

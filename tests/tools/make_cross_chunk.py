"""Writes a data set of questions whose answer takes two passages, one of which refers to the other.

    python3 tests/tools/make_cross_chunk.py --items 100 --seed 1 --out cross.jsonl

For `cento eval`: a chunk whose KV was computed without the passage that it refers to is where reuse should hurt most.
Names are made of syllables, so that no model has read of them. Kinds:

    alias      a name is given to a thing in one passage and used in another
    pronoun    a passage begins with It, She, He or They; who that is stands in the passage right before
    override   a later passage changes a figure of an earlier one; asked is the one in force
    order      an event is dated by another, or follows on it; asked is which came first, or what came after
    two-hop    a passage names somebody whom only another one tells about; they stand in either order

A line is {"id","source","question","answers","passages":[{"title","text","gold"}],"meta"}. The two passages of the
story that is asked about are gold; the others are stories of the same kind about other names, none of which holds the
answer. The passage that refers is never the first. "meta" says of which kind an item is, and at which index the
passages stand: "referent" the one that is referred to, "referring" the other.

The same arguments give the same bytes with every Python from 3.6 on.
"""

import argparse
import hashlib
import json
import re
import sys

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
from cross_chunk_stories import STORIES

PASSAGES = (6, 10)  # of an item
PAIRED = {"pronoun"}  # the second passage stands right behind the first
EITHER_ORDER = {"two-hop"}


class Dice:
    """Random integers (splitmix64: Steele, Lea and Flood 2014), the same everywhere."""

    MASK = 2**64 - 1

    def __init__(self, label):
        self.state = int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "little")

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & self.MASK
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & self.MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & self.MASK
        return (z ^ z >> 31) * n >> 64

    def between(self, low, high):
        return low + self.below(high - low + 1)

    def pick(self, options):
        return options[self.below(len(options))]

    def shuffle(self, items):
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]


class Names:
    """Invented names, none of them given twice."""

    HEADS = "b br d dr f g gr h k kr l m n p pr r s sk st t tr v vr z".split()
    VOWELS = "a e i o u ai ei ou".split()
    MIDDLES = "b d l ld lm m n nd r rv sk st t v z".split()
    TAILS = "d k l m n nd r rn s sk st th x".split()

    def __init__(self):
        self.given = set()

    def draw(self, dice):
        while True:
            parts = (self.HEADS, self.VOWELS, self.MIDDLES, self.VOWELS, self.TAILS)
            name = "".join(dice.pick(part) for part in parts).capitalize()
            if name not in self.given:
                self.given.add(name)
                return name


def draw_slots(story, dice, names):
    slots = {}
    for slot, rule in story.slots.items():
        what, _, rest = rule.partition(" ")
        if what == "name":
            slots[slot] = names.draw(dice)
        elif what == "person":
            slots[slot] = names.draw(dice) + " " + names.draw(dice)
        elif what == "he":
            slots["he"], slots["his"] = dice.pick([("she", "her"), ("he", "his")])
            slots["He"], slots["His"] = slots["he"].capitalize(), slots["his"].capitalize()
        elif what == "year":
            slots[slot] = str(dice.between(*map(int, rest.split())))
        elif what == "after":
            base, low, high = rest.split()
            slots[slot] = str(int(slots[base]) + dice.between(int(low), int(high)))
        elif what == "any":
            slots[slot] = dice.pick(rest.split("|"))
        else:
            raise ValueError("no such rule: " + rule)
    return slots


def write(template, slots, dice):
    chosen = re.sub(r"\[([^\[\]]*)\]", lambda match: dice.pick(match.group(1).split("|")), template)
    return chosen.format(**slots)


def tell(story, dice, names):
    """Question, answer and the two passages, (title, text) each, the one that refers last."""
    slots = draw_slots(story, dice, names)
    passages = [tuple(write(part, slots, dice) for part in passage) for passage in (story.first, story.second)]
    return write(story.question, slots, dice), story.answer.format(**slots), passages


def holds(passage, answer):
    return re.search(r"(?<!\w)" + re.escape(answer) + r"(?!\w)", " ".join(passage)) is not None


def draw_others(kind, answer, n, dice, names):
    """n passages of other stories, as lists of one or two that keep their order; the answer is in none of them."""
    others = []
    while n > 0:
        passages = tell(dice.pick(STORIES[kind]), dice, names)[2][:n]  # of the last story perhaps its first alone
        if not any(holds(passage, answer) for passage in passages):
            others.append(passages)
            n -= len(passages)
    return others


def arrange(told, kind, dice):
    """All passages in the order of the prompt: stories are mixed, the order within each is kept."""
    runs = [[story] if kind in PAIRED else [[passage] for passage in story] for story in told]
    turns = [i for i, story in enumerate(runs) for _ in story]
    dice.shuffle(turns)
    queues = [iter(story) for story in runs]
    return [passage for turn in turns for passage in next(queues[turn])]


def make_item(kind, number, seed, names):
    dice = Dice("%d %s %d" % (seed, kind, number))
    question, answer, (referent, referring) = tell(dice.pick(STORIES[kind]), dice, names)
    others = draw_others(kind, answer, dice.between(*PASSAGES) - 2, dice, names)
    order = [referent, referring]
    while True:
        if kind in EITHER_ORDER:
            dice.shuffle(order)
        prompt = arrange([order] + others, kind, dice)
        if prompt[0] is not referring:
            break
    gold = (referent, referring)
    return {
        "id": "cross-%s-%d-%d" % (kind, seed, number),
        "source": "cross-chunk",
        "question": question,
        "answers": [answer],
        "passages": [{"title": title, "text": text, "gold": (title, text) in gold} for title, text in prompt],
        "meta": {"kind": kind, "referent": prompt.index(referent), "referring": prompt.index(referring)},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--items", type=int, default=100, help="lines (default 100)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other items (default 1)")
    parser.add_argument("--kind", choices=sorted(STORIES), help="this kind alone; else all in turn")
    parser.add_argument("--out", required=True, help="file to write")
    args = parser.parse_args()
    if args.items < 1:
        parser.error("--items has to be at least 1")
    kinds = [args.kind] if args.kind else list(STORIES)
    names = Names()
    with open(args.out, "w", encoding="utf-8", newline="\n") as file:
        for number in range(args.items):
            file.write(json.dumps(make_item(kinds[number % len(kinds)], number, args.seed, names)) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Write vectors.txt: small rows of logits, and the distributions that llama.cpp's samplers make of
them.

    python3 tests/sampling/reference.py > tests/sampling/vectors.txt

The definitions are those of llama.cpp (src/llama-sampler.cpp, docs of its samplers), in double, one
sampler a function over candidates [(token, logit)]; the random number of XTC is 0, so it always
acts.  Where llama.cpp leaves the order of equal logits open, tgc keeps or drops all of a tie; rows
here have none.
"""
import math
import random

NAMES = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc",
         "temperature"]


def softmax(c):
    top = max(x for _, x in c)
    e = [math.exp(x - top) for _, x in c]
    return [v / sum(e) for v in e]


def descending(c):
    return sorted(c, key=lambda t: -t[1])


def penalties(c, q):
    last = q["history"][-q["repeat_last_n"]:] if q["repeat_last_n"] else []
    out = []
    for t, x in c:
        n = last.count(t)
        if n:
            x = x * q["repeat_penalty"] if x <= 0 else x / q["repeat_penalty"]
            x -= n * q["frequency_penalty"] + q["presence_penalty"]
        out.append((t, x))
    return out


def dry(c, q):
    last = list(reversed(q["history"]))[:q["dry_last_n"]]  # the newest first
    n, allowed = len(last), q["dry_allowed_length"]
    if q["dry_multiplier"] == 0 or q["dry_base"] < 1 or n <= allowed:
        return c
    limit = n
    for i, t in enumerate(last):
        tails = [tail for head, tail in q["breakers"] if head == t and len(tail) <= i
                 and all(tail[k] == last[i - 1 - k] for k in range(len(tail)))]
        tails += [[]] if t in q["single"] else []
        if tails:
            limit = i - max(map(len, tails))
            break
    if limit < allowed:
        return c
    longest = {}
    for k in range(1, n):
        length = 0
        while length + k < n and last[length] == last[length + k]:
            length += 1
        length = min(length, limit)
        if length >= allowed:
            t = last[k - 1]
            longest[t] = max(longest.get(t, 0), length)
    singles = set(q["single"]) | {h for h, tail in q["breakers"] if not tail}
    return [(t, x - q["dry_multiplier"] * q["dry_base"] ** (longest[t] - allowed)
             if t in longest and t not in singles else x) for t, x in c]


def top_n_sigma(c, q):
    if q["top_n_sigma"] <= 0 or len(c) <= 1:
        return c
    xs = [x for _, x in c]
    mean = sum(xs) / len(xs)
    std = math.sqrt(sum((x - mean) ** 2 for x in xs) / len(xs))
    return [(t, x) for t, x in c if x >= max(xs) - q["top_n_sigma"] * std]


def top_k(c, q):
    return descending(c)[:q["top_k"]] if q["top_k"] > 0 else c


def typ_p(c, q):
    if q["typical_p"] >= 1:
        return c
    p = softmax(c)
    h = -sum(v * math.log(v) for v in p)
    order = sorted(range(len(c)), key=lambda i: abs(-math.log(p[i]) - h))
    total, kept = 0, []
    for i in order:
        total += p[i]
        kept.append(c[i])
        if total > q["typical_p"]:
            break
    return kept


def top_p(c, q):
    if q["top_p"] >= 1:
        return c
    c = descending(c)
    total, kept = 0, []
    for item, p in zip(c, softmax(c)):
        total += p
        kept.append(item)
        if total >= q["top_p"]:
            break
    return kept


def min_p(c, q):
    if q["min_p"] <= 0:
        return c
    least = max(x for _, x in c) + math.log(q["min_p"])
    return [(t, x) for t, x in c if x >= least]


def xtc(c, q):
    if q["xtc_probability"] <= 0 or q["xtc_threshold"] > 0.5 or len(c) < 2:
        return c
    c = descending(c)
    likely = [i for i, p in enumerate(softmax(c)) if p >= q["xtc_threshold"]]
    return c[likely[-1]:] if likely else c


def temperature(c, q):
    temp = q["temp"]
    if q["dynatemp_range"] > 0:
        if len(c) <= 1:
            return c
        low, high = max(0, temp - q["dynatemp_range"]), temp + q["dynatemp_range"]
        h = -sum(v * math.log(v) for v in softmax(c) if v > 0)
        temp = low + (high - low) * (h / math.log(len(c))) ** q["dynatemp_exponent"]
    if temp <= 0:
        return [max(c, key=lambda t: t[1])]
    return [(t, x / temp) for t, x in c]


def mirostat(c, q):
    c = descending(temperature(c, q))
    kept = [item for item, p in zip(c, softmax(c)) if -math.log2(p) <= q["mirostat_mu"]]
    return kept or c[:1]


CHAIN = dict(zip(NAMES, [penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc,
                         temperature]))


def case(r):
    v = r.randrange(3, 24)
    q = dict(temp=r.choice([0, .5, .8, 1, 1.7]), dynatemp_range=r.choice([0, 0, .3, 1]),
             dynatemp_exponent=r.choice([.5, 1, 2]), top_k=r.choice([0, 0, r.randrange(1, v + 1)]),
             top_p=r.choice([1, .4, .8, .95]), min_p=r.choice([0, .02, .1, .3]),
             typical_p=r.choice([1, 1, .3, .7, .95]), top_n_sigma=r.choice([0, 0, .75, 1.5]),
             xtc_probability=r.choice([0, 0, 1]), xtc_threshold=r.choice([.05, .1, .3, .6]),
             repeat_penalty=r.choice([1, 1.1, 1.5]), presence_penalty=r.choice([0, .5, -.5]),
             frequency_penalty=r.choice([0, .3]), repeat_last_n=r.choice([0, 5, 64]),
             dry_multiplier=r.choice([0, .8, 2]), dry_base=r.choice([1, 1.75]),
             dry_allowed_length=r.choice([0, 1, 2, 3]), dry_last_n=r.choice([0, 10, 64]),
             mirostat=r.choice([0] * 9 + [2]), mirostat_mu=r.choice([1, 3, 10]))
    names = list(NAMES)
    if r.random() < .3:
        r.shuffle(names)
        names = names[:r.randrange(1, 10)]
    q["order"] = names
    q["history"] = [r.randrange(min(v, 4)) for _ in range(r.randrange(0, 40))]
    q["single"] = sorted({r.randrange(v) for _ in range(r.randrange(0, 2))})
    q["breakers"] = [(r.randrange(min(v, 4)), [r.randrange(min(v, 4))
                                               for _ in range(r.randrange(0, 3))])
                     for _ in range(r.randrange(0, 3))]
    logits = [round(r.gauss(0, 3), 4) for _ in range(v)]
    c = list(enumerate(logits))
    if q["mirostat"]:
        c = mirostat(c, q)
    else:
        for name in names:
            c = CHAIN[name](c, q)
    p = [0.0] * v
    for (t, _), w in zip(c, softmax(c)):
        p[t] = w
    return q, logits, p


def main():
    r = random.Random(20261125)
    print("# by reference.py; the order's numbers are those of runtime/rt.h")
    n = 0
    while n < 150:
        q, logits, p = case(r)
        if len(set(logits)) < len(logits):
            continue
        n += 1
        print("case")
        for k, x in q.items():
            if k == "order":
                print("order", *[NAMES.index(name) + 1 for name in x])
            elif k == "breakers":
                if x:
                    print("breaker", *[w for head, tail in x for w in [head, len(tail), *tail]])
            elif isinstance(x, list):
                print(k, *x)
            else:
                print(k, x)
        print("logits", *logits)
        print("probabilities", *["%.9g" % x for x in p])
        print("end")


main()

#!/usr/bin/env python3
"""Writes tests/data/text/stories.txt: small stories out of a grammar, 65 different characters.
Needs nothing.

    python3 tests/data/make_text.py
"""
import os, random

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ["Ann", "Bob", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal", "Ivy", "Jack", "Kit", "Lou",
         "Mia", "Ned", "Ola", "Pip", "Quin", "Rose", "Sam", "Tess", "Uma", "Vera", "Wes", "Xena",
         "Yann", "Zoe"]
KIND = ["girl", "boy", "fox", "dog", "bird", "frog", "mouse", "cat"]
HOW = ["little", "happy", "quiet", "brave", "lazy", "young", "old", "curious"]
THING = ["ball", "boat", "kite", "red box", "blue cup", "jar", "key", "apple", "yellow hat", "book",
         "drum", "lamp"]
PLACE = ["park", "forest", "garden", "kitchen", "lake", "hill", "market", "zoo"]
TAKE = ["found", "lost", "saw", "made", "hid", "fixed", "wanted", "shared"]
FEEL = ["happy", "sad", "proud", "afraid", "surprised", "tired", "excited"]


def story(r):
    a, b = r.sample(NAMES, 2)
    kind, how, thing, place = r.choice(KIND), r.choice(HOW), r.choice(THING), r.choice(PLACE)
    lines = [f"Once upon a time there was a {how} {kind} named {a}.",
             f"{a} {r.choice(TAKE)} a {thing} in the {place}."]
    told = [f'"Look, {b}!" said {a}. "It is my {thing}."'.replace('"', "'"),
            f"{b} asked: where is the {thing}?",
            f"{a} was {r.choice(FEEL)}, but {b} was {r.choice(FEEL)}.",
            f"{a} & {b} went to the {place}; it was a sunny day.",
            f"The {thing} cost {r.choice(['$', ''])}3, or three coins.",
            f"'I don't know,' said {b}. 'Let us ask the {how} {kind}.'",
            f"They walked to the {r.choice(PLACE)} - and back again!",
            f"So {a} gave the {thing} to {b}.",
            f"{b} said, 'Thank you, {a}! You are very kind.'"]
    order = sorted(r.sample(range(len(told)), r.randint(3, 5)))
    lines += [told[i] for i in order]
    lines.append(f"In the end they were {r.choice(FEEL)} and went home.")
    return " ".join(lines) + "\n\n"


if __name__ == "__main__":
    r, text = random.Random(19), ""
    while len(text) < 96 << 10:
        text += story(r)
    text += "OK, that's all.\n"
    os.makedirs(f"{HERE}/text", exist_ok=True)
    with open(f"{HERE}/text/stories.txt", "w", newline="\n") as f:
        f.write(text)
    print(len(text), len(set(text)), "".join(sorted(set(text))))

#!/usr/bin/env python3
"""Compare tgc's tokenizers with the packages `tokenizers` and `sentencepiece` on random strings and
random ids.

    tests/tokenizers/compare.py [--n 20000] [--seed 1] PATH...

PATH is a tokenizer.json, a tokenizer.model of sentencepiece, a .tiktoken file (or Llama 3's
tokenizer.model), BERT's vocab.txt, or a folder with encoder.json + vocab.bpe.  Prints every
difference (at most --show of a tokenizer) and a line of sums for each; exit status 1 when anything
differs.  tgc's side is runtime/*.c, built here as a shared library with $CC.
"""
import argparse
import base64
import ctypes
import functools
import glob
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))

# ---- tgc
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
#
# --------------------------------------------------------------------------------------------------


class Err(ctypes.Structure):
    # at least as large as the real one
    _fields_ = [("code", ctypes.c_int), ("msg", ctypes.c_char * 65536)]


class Stream(ctypes.Structure):
    _fields_ = [("begun", ctypes.c_int), ("stripped", ctypes.c_int)]


def build(folder):
    so = os.path.join(folder, "tok.so")
    src = glob.glob(ROOT + "/runtime/tokenizer/*.c")
    src += [ROOT + "/runtime/util/%s.c" % f
            for f in ("c_locale", "err", "json_text", "line_reader", "mem")]
    subprocess.check_call(os.environ.get("CC", "cc").split()
                          + ["-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", "-o", so, *src,
                             "-lpcre2-8", "-lutf8proc", "-lcjson", "-lxxhash", "-lm", "-lpthread"])
    return ctypes.CDLL(so)


class Ours:
    def __init__(self, lib, path):
        self.lib, self.t, e = lib, ctypes.c_void_p(), Err()
        if lib.tokenizer_open(ctypes.byref(self.t), path.encode(), 0, ctypes.byref(e)):
            raise SystemExit("%s: %s" % (path, e.msg.decode(errors="replace")))
        lib.tokenizer_next.restype = ctypes.c_void_p
        self.free = ctypes.CDLL(None).free
        self.free.argtypes = [ctypes.c_void_p]
        self.vocab = lib.tokenizer_vocab(self.t)

    def encode(self, text, bos=0):
        ids, n, e = ctypes.POINTER(ctypes.c_int)(), ctypes.c_int(), Err()
        text = text.encode()
        if self.lib.tokenizer_encode(self.t, text, ctypes.c_size_t(len(text)), bos,
                                     ctypes.byref(ids), ctypes.byref(n), ctypes.byref(e)):
            return e.msg.decode(errors="replace")
        out = ids[:n.value]
        self.free(ids)
        return out

    def decode(self, ids):
        """The text, and whether the stream of bytes agrees with it."""
        a, text, n, e = (ctypes.c_int * len(ids))(*ids), ctypes.c_void_p(), ctypes.c_size_t(), Err()
        if self.lib.tokenizer_text(self.t, a, len(ids), ctypes.byref(text), ctypes.byref(n),
                                   ctypes.byref(e)):
            return e.msg.decode(errors="replace"), True
        out = ctypes.string_at(text, n.value)
        self.free(text)
        stream, s = Stream(), b""
        for i in ids:
            p = self.lib.tokenizer_next(self.t, ctypes.byref(stream), i, ctypes.byref(n))
            s += ctypes.string_at(p, n.value)
        return out.decode(), "\ufffd" in out.decode() or s == out


# ---- the references ------------------------------------------------------------------------------

LETTERS = "'s|'t|'re|'ve|'m|'ll|'d"
GPT2 = LETTERS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (
    "(?i:" + LETTERS
    + r")|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = CL100K.replace("{1,3}", "")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (r"[^\r\n\p{L}\p{N}]?%s*%s+(?i:%s)?|[^\r\n\p{L}\p{N}]?%s+%s*(?i:%s)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+") % (
             UPPER, LOWER, LETTERS, UPPER, LOWER, LETTERS)
UNUSED = "\0unused "                    # fills the places between a family's special tokens
FAMILY = {                              # by the number of ordinary tokens
    50256: (GPT2, {50256: "<|endoftext|>"}),
    100256: (CL100K, {100257: "<|endoftext|>", 100258: "<|fim_prefix|>", 100259: "<|fim_middle|>",
                      100260: "<|fim_suffix|>", 100276: "<|endofprompt|>"}),
    199998: (O200K, {199999: "<|endoftext|>", 200018: "<|endofprompt|>"}),
    128000: (CL100K, {128000: "<|begin_of_text|>", 128001: "<|end_of_text|>",
                      128004: "<|finetune_right_pad_id|>", 128006: "<|start_header_id|>",
                      128007: "<|end_header_id|>", 128008: "<|eom_id|>", 128009: "<|eot_id|>",
                      128010: "<|python_tag|>"}),
    151643: (QWEN, {151643: "<|endoftext|>", 151644: "<|im_start|>", 151645: "<|im_end|>"}),
}


@functools.lru_cache(maxsize=None)
def byte_chars():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    return {**{b: chr(b) for b in keep}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def byte_level(vocab, merges, regex, special, whole_first):
    """A byte-level BPE; special tokens keep their ids by growing the vocabulary up to them."""
    bpe = models.BPE(vocab=vocab, merges=merges, ignore_merges=whole_first)
    t = Tokenizer(bpe)
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(regex), "isolated"),
         pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in special.values()])
    assert all(t.token_to_id(s) == i for i, s in special.items())
    return t


def from_ranks(path):
    chars, vocab = byte_chars(), {}
    for line in open(path, "rb").read().splitlines():
        if line:
            token, rank = line.split()
            vocab["".join(chars[b] for b in base64.b64decode(token))] = int(rank)
    regex, special = FAMILY[len(vocab)]
    merges = []
    for token, rank in vocab.items():
        for i in range(1, len(token)):
            a, b = token[:i], token[i:]
            if a in vocab and b in vocab:
                merges.append((rank, vocab[a], vocab[b], a, b))
    merges = [(a, b) for *_, a, b in sorted(merges)]
    for i in range(max(special)):
        if i not in special and i >= len(vocab):
            special = {**special, i: None}
    full = {**vocab, **{(s or UNUSED + str(i)): i for i, s in special.items()}}
    return byte_level(full, merges, regex, {i: s for i, s in special.items() if s}, True)


def from_gpt2(folder):
    vocab = json.load(open(folder + "/encoder.json", encoding="utf-8"))
    lines = open(folder + "/vocab.bpe", encoding="utf-8").read().split("\n")[1:]
    return byte_level(vocab, [tuple(s.split(" ")) for s in lines if s], GPT2,
                      {50256: "<|endoftext|>"}, False)


def from_bert(path):
    vocab = [s.rstrip("\r\n") for s in open(path, encoding="utf-8", newline="\n")]
    settings = json.load(open(os.path.join(os.path.dirname(path), "tokenizer_config.json")))
    lower = settings.get("do_lower_case", True)
    t = Tokenizer(models.WordPiece({p: i for i, p in enumerate(vocab)}, unk_token="[UNK]",
                                   max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(True, settings.get("tokenize_chinese_chars", True),
                                              settings.get("strip_accents"), lower)
    t.pre_tokenizer, t.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    t.add_special_tokens([AddedToken(s, normalized=False, special=True)
                          for s in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")])
    return t


class Pieces:
    """sentencepiece with the face of a Tokenizer."""
    def __init__(self, path):
        import sentencepiece
        self.sp = sentencepiece.SentencePieceProcessor(model_file=path)
        self.decoder = decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
             decoders.Strip(" ", int(self.sp.encode_as_pieces("a")[0] != "a"), 0)])

    def encode(self, text):
        return self.sp.encode(text)

    def decode(self, ids):
        """As the tokenizer.json made of it: sentencepiece itself keeps what is good in a run of
        bytes."""
        skip = lambda i: self.sp.is_control(i) or self.sp.is_unknown(i) or self.sp.is_unused(i)
        return self.decoder.decode([self.sp.id_to_piece(i) for i in ids if not skip(i)])

    def words(self):
        return [self.sp.id_to_piece(i).replace("\u2581", " ")
                for i in range(self.sp.get_piece_size())
                if self.sp.IsControl(i) or not self.sp.is_byte(i)]


class Whole:
    def __init__(self, t):
        self.t = t
        self.special = {i for i, a in t.get_added_tokens_decoder().items() if a.special}
        self.special |= {i for s, i in t.get_vocab().items() if s.startswith(UNUSED)}

    def encode(self, text):
        return self.t.encode(text, add_special_tokens=False).ids

    def encode_bos(self, text):
        return self.t.encode(text, add_special_tokens=True).ids

    def decode(self, ids):
        """Special tokens are taken out here: 0.23 prints those that its normaliser changes."""
        return self.t.decode([i for i in ids if i not in self.special], skip_special_tokens=True)

    def words(self):
        return sorted(self.t.get_vocab())


def reference(path):
    if os.path.isdir(path):
        return Whole(from_gpt2(path))
    if path.endswith(".json"):
        return Whole(Tokenizer.from_file(path))
    if path.endswith(".txt"):
        return Whole(from_bert(path))
    if open(path, "rb").read(1) == b"\n":
        return Pieces(path)
    return Whole(from_ranks(path))


# ---- random strings ------------------------------------------------------------------------------

BLOCKS = [(0x20, 0x7e)] * 6 + [
    (0xa0, 0x24f), (0x250, 0x2ff), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x52f), (0x530, 0x5ff),
    (0x600, 0x6ff), (0x700, 0x8ff), (0x900, 0xdff), (0xe00, 0xeff), (0x1000, 0x10ff),
    (0x1100, 0x11ff), (0x1200, 0x1cff), (0x1d00, 0x1dff), (0x1e00, 0x1fff), (0x2000, 0x206f),
    (0x2070, 0x20ff), (0x2100, 0x23ff), (0x2400, 0x2bff), (0x2c00, 0x2fff), (0x3000, 0x30ff),
    (0x3100, 0x33ff), (0x4e00, 0x9fff), (0xa000, 0xabff), (0xac00, 0xd7a3), (0xf900, 0xfaff),
    (0xfb00, 0xfdff), (0xfe00, 0xfeff), (0xff00, 0xffef), (0x10000, 0x107ff), (0x10800, 0x10fff),
    (0x11000, 0x11fff), (0x12000, 0x16fff), (0x1d000, 0x1d7ff), (0x1e000, 0x1efff),
    (0x1f000, 0x1fbff), (0x20000, 0x323af), (0xe0000, 0xe01ef), (0xe000, 0xf8ff)]
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd",
         "\u2764\ufe0f", "\U0001f1e9\U0001f1ea", "1\ufe0f\u20e3", "\U0001fae8", "\U0001fa77"]
SPACE = [" ", "  ", "\n", "\t", "\r\n", "\n\n", "   \n  ", "\u00a0", "\u3000", "\u2003", "\u200b",
         "\u180e", "\x85", "\u2028", "\x0b", "\x1c", "\u1680", "\ufeff"]
WORDS = ["don't", "I'LL", "we've", "the", " The", "Hello", " world", "x=1;", "3.14159", "1234567",
         "\u00bd\u00b2", "na\u00efve", "e\u0301", "A\u030a\u0327", "\u1e9b\u0323", "\u017fs",
         "'\u017f", "\u0130I\u0131", "\ufb01", "\u2126", "\uac01\u11a8", "\u0958", "\u2460",
         "\ufdfa", "__a_b", "<0x41>", "<0xE2>", "\u2581", "\u2581a"]


def random_text(r, words):
    out = []
    for _ in range(r.choice((1, 2, 3, 5, 8, 13, 30))):
        k = r.random()
        if k < .25:
            out.append(r.choice(WORDS))
        elif k < .40:
            out.append(r.choice(SPACE) * r.choice((1, 1, 1, 2, 5)))
        elif k < .45:
            out.append(r.choice(EMOJI))
        elif k < .60 and words:
            out.append(r.choice(words))
        elif k < .65:
            out.append("".join(chr(r.randrange(32)) for _ in range(r.randrange(1, 3))))
        elif k < .70:
            out.append(str(r.randrange(10 ** r.randrange(1, 12))))
        elif k < .75:
            c = r.randrange(0x110000)
            out.append(chr(c) if not 0xd800 <= c < 0xe000 else "?")
        elif k < .80:
            out.append(r.choice("aeioun")
                       + "".join(chr(r.randrange(0x300, 0x370)) for _ in range(r.randrange(1, 4))))
        elif k < .83:
            out.append(r.choice("ab -\n.") * r.randrange(1, 40))
        else:
            a, b = r.choice(BLOCKS)
            out.append("".join(chr(r.randint(a, b)) for _ in range(r.randrange(1, 9))))
    return "".join(out)


# ---- comparing -----------------------------------------------------------------------------------

def compare(lib, path, args):
    ours, ref, r = (Ours(lib, path), reference(path),
                    random.Random("%d %s" % (args.seed, os.path.basename(path))))
    words = ref.words()
    added = ([t.content for t in ref.t.get_added_tokens_decoder().values()]
             if isinstance(ref, Whole) else [])
    words += added * (1 + len(words) // (4 * len(added))) if added else []
    bad = {"encode": 0, "decode": 0, "stream": 0}

    def tell(kind, given, want, got):
        bad[kind] += 1
        if bad[kind] <= args.show:
            print("%s: %s %s\n   reference %s\n   tgc       %s"
                  % (path, kind, ascii(given), ascii(want), ascii(got)))

    for i in range(args.n):
        text = random_text(r, words)
        want, got = ref.encode(text), ours.encode(text)
        if got != want:
            tell("encode", text, want, got)
        if i % 16 == 0 and path.endswith(".json"):
            plain, want, got = ref.encode(text), ref.encode_bos(text), ours.encode(text, 1)
            # what stands behind a text is left out
            if got != want[:len(got)] or got[len(got) - len(plain):] != plain:
                tell("encode", "with BOS: " + text, want, got)
        ids = [r.randrange(ours.vocab) for _ in range(r.randrange(12))]
        if r.random() < .5:
            cut = want[r.randrange(len(want) + 1):] if isinstance(want, list) else []
            ids = ids[:3] + cut + ids[3:] if r.random() < .7 else cut
        if r.random() < .3 and added:
            for _ in range(r.randrange(1, 4)):
                ids.insert(r.choice((0, r.randrange(len(ids) + 1))),
                           ref.t.token_to_id(r.choice(added)))
        if r.random() < .3:
            k = r.randrange(len(ids) + 1)
            ids[k:k] = [b
                        for b in (ours_byte(ref, r.randrange(256))
                                  for _ in range(r.randrange(1, 7))) if b is not None]
        want, (got, agrees) = ref.decode(ids), ours.decode(ids)
        if got != want:
            tell("decode", ids, want, got)
        if not agrees:
            tell("stream", ids, want, "the stream of bytes is not the text")
    print("%s: %d strings, %d ids lists; differ: encode %d, decode %d, stream %d"
          % (path, args.n, args.n, bad["encode"], bad["decode"], bad["stream"]), flush=True)
    return sum(bad.values())


def ours_byte(ref, b):
    find = ref.t.token_to_id if isinstance(ref, Whole) else lambda s: ref.sp.piece_to_id(s) or None
    i = find("<0x%02X>" % b)
    return find(byte_chars()[b]) if i is None else i


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--n", type=int, default=20000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--show", type=int, default=5)
    p.add_argument("path", nargs="+")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lib = build(folder)
        return 1 if sum(compare(lib, path, args) for path in args.path) else 0


if __name__ == "__main__":
    sys.exit(main())

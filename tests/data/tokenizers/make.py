#!/usr/bin/env python3
"""Make the vocabularies in this folder and vectors.txt, with the packages `tokenizers` and `sentencepiece`.

    tests/data/tokenizers/make.py           (in any directory; some seconds)

Every vocabulary is trained here, on text that this script makes up.  vectors.txt has what the packages say:

    file NAME           the lines behind it are of this file, folder or (ranks COUNT) family of rank files
    e TEXT IDS...       encoding, nothing added
    b TEXT IDS...       encoding with what stands before a text
    d TEXT IDS...       decoding, special tokens left out

TEXT has bytes other than ! to ~ and every backslash as \\HH; of no bytes it is a lone backslash.  The rank files are too large to be here: test_tokenizer.c makes them
as ranks() does.
"""
import base64
import json
import os
import random
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../tokenizers"))

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders as D, models, normalizers as N, pre_tokenizers as P,
                        processors, trainers)
import compare

SEED, N_ENCODE, N_DECODE = 19, 48, 32
MARK = "\u2581"


# ---- text to train on ---------------------------------------------------------------------------------------------

def make_text():
    r = random.Random(SEED)
    parts = "ba be bi bo da de do ka ke ko la le li lo ma me mi mo na ne no ra re ri ro sa se so ta te ti to th sh st".split()
    words = ["".join(r.choice(parts) for _ in range(r.choice((1, 1, 2, 2, 3)))) for _ in range(300)]
    words += ["na\u00efve", "\u00e9t\u00e9", "\u043c\u0438\u0440", "\u4e2d\u6587", "\u6587\u5b57", "\u0928\u092e\u0938\u094d\u0924\u0947",
              "\U0001f600", "12", "2024", "3.14", "don't", "I'll", "x=1;", "(a)", "[b]", "__c", "e\u0301", "\uac01", "\u3042\u3044"] * 6
    lines = []
    for _ in range(1200):
        s = " ".join(r.choice(words) for _ in range(r.randrange(3, 14)))
        lines.append(s[0].upper() + s[1:] + r.choice(".!?,:") + r.choice(("", "  ", "\n\n", "\t")))
    return lines


TEXT = make_text()


# ---- vocabularies -------------------------------------------------------------------------------------------------

def train(size, alphabet=(), norm=None, pre=None):
    """Tokens and merges of a BPE."""
    t = Tokenizer(models.BPE())
    if norm:
        t.normalizer = norm
    if pre:
        t.pre_tokenizer = pre
    t.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=size, initial_alphabet=list(alphabet), show_progress=False))
    model = json.loads(t.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [tuple(m) for m in model["merges"]]


def bpe(tokens, merges, front=(), **options):
    tokens = [*front, *(t for t in tokens if t not in front)]
    return Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, **options))


def special(t, *names, **how):
    t.add_special_tokens([AddedToken(s, special=True, **{"normalized": False, **how}) for s in names])


def before(t, *names):
    t.post_processor = processors.TemplateProcessing(
        single=" ".join(names) + " $A", pair=" ".join(names) + " $A $B", special_tokens=[(s, t.token_to_id(s)) for s in names])


BYTES = ["<0x%02X>" % b for b in range(256)]
RAW = list(compare.byte_chars().values())
LLAMA_FRONT = ["<unk>", "<s>", "</s>", *BYTES]
HAN = r"[\u4e00-\u9fa5\u3040-\u309f]+"
DEEPSEEK = [r"\p{N}{1,3}", HAN.encode().decode("unicode_escape"),
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
            r"""\s*[\r\n]+|\s+(?!\S)|\s+"""]
CLASSES = [r"\w+", r"\W", r"\s", r"[^\s\w]", r"\d+", r"\D", r"[[:space:][:punct:]]", r"\h", r"\bth", r"e\B", r"\p{Lu}\p{Ll}*",
           r"\p{M}", r"(?i)[^\d\s]e", r"\p{Han}|\p{Hiragana}", r"[\p{Lt}\p{Lm}\p{Lo}]+", r"\p{S}|\p{Cf}|\p{Cn}"]


def byte_level():
    tokens, merges = train(420, RAW, None, P.ByteLevel(add_prefix_space=False))
    tokens += ["<|endoftext|>", "<|im_start|>"]
    vocab = {t: i for i, t in enumerate(tokens)}
    return lambda regex, whole=False, last=len(tokens): compare.byte_level(
        {t: i for t, i in vocab.items() if i < last}, merges, regex, {vocab[s]: s for s in tokens[-2:] if vocab[s] < last}, whole)


def llama_decoder():
    return D.Sequence([D.Replace(MARK, " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])


def jsons():
    """Each kind of part that a tokenizer.json may have, in the company it has in public models, or in a strange one."""
    of_bytes = byte_level()
    t = of_bytes(compare.GPT2)
    t.pre_tokenizer = P.ByteLevel(add_prefix_space=False)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    yield "gpt2", t
    t = of_bytes(compare.GPT2, last=t.get_vocab_size() - 1)
    t.pre_tokenizer = P.ByteLevel(add_prefix_space=False)
    yield "gpt2/", t
    t = of_bytes(compare.GPT2)
    t.pre_tokenizer = P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=True)])
    yield "bytes_prefix", t
    t = of_bytes(compare.CL100K, whole=True)
    before(t, "<|im_start|>")
    yield "llama3", t
    t = of_bytes(compare.QWEN)
    t.normalizer = N.NFC()
    t.add_tokens([AddedToken("<think>", normalized=False), AddedToken("caf\u00e9", normalized=True)])
    yield "qwen", t
    yield "o200k", of_bytes(compare.O200K)
    t = of_bytes(compare.GPT2)
    t.pre_tokenizer = P.Sequence([*(P.Split(Regex(x), "isolated") for x in DEEPSEEK), P.ByteLevel(False, use_regex=False)])
    t.decoder = D.Sequence([D.ByteLevel(), D.Strip("b", 2, 0)])
    yield "deepseek", t

    norm = N.Sequence([N.Prepend(MARK), N.Replace(" ", MARK)])
    tokens, merges = train(380, "", norm)
    llama = lambda **o: bpe(tokens, merges, LLAMA_FRONT, unk_token="<unk>", fuse_unk=True, byte_fallback=True, **o)
    t = llama()
    t.normalizer, t.decoder = norm, llama_decoder()
    special(t, "<unk>", "<s>", "</s>")
    before(t, "<s>")
    yield "llama2", t
    t.add_special_tokens([AddedToken("<|user|>", rstrip=True, normalized=False), AddedToken("<|end|>", rstrip=True, normalized=False)])
    t.add_tokens([AddedToken("<|tool|>", lstrip=True, normalized=False), AddedToken("<|n|>", normalized=True),
                  AddedToken("<word>", single_word=True, normalized=False), AddedToken("<|n", normalized=False)])
    yield "phi3", t
    for scheme, split, decoder in (("always", True, D.Metaspace(prepend_scheme="always")),
                                   ("first", False, llama_decoder()),
                                   ("never", True, D.Metaspace(prepend_scheme="never"))):
        t = llama()
        t.pre_tokenizer, t.decoder = P.Metaspace(prepend_scheme=scheme, split=split), decoder
        special(t, "<unk>", "<s>", "</s>")
        t.add_tokens([AddedToken("<x>", normalized=False)])
        before(t, "<s>", "</s>")
        yield "metaspace_" + scheme, t
    t = bpe(tokens, merges, ["<unk>", *BYTES[:0xc0], *BYTES[0xd0:]], unk_token="<unk>", fuse_unk=False, byte_fallback=True)
    t.decoder = D.Sequence([D.ByteFallback(), D.Fuse()])
    yield "bytes_missing", t

    tokens, merges = train(330, "", N.Sequence([N.NFKC(), N.Lowercase()]), P.Whitespace())
    words = lambda **o: bpe(tokens, merges, ["<unk>"], unk_token="<unk>", **o)
    t = words()
    t.normalizer, t.pre_tokenizer = N.Sequence([N.NFKC(), N.Lowercase()]), P.Whitespace()
    yield "words", t
    t = words(fuse_unk=True)
    t.normalizer = N.Sequence([N.NFD(), N.StripAccents(), N.Lowercase(), N.Strip(True, True)])
    t.pre_tokenizer, t.decoder = P.BertPreTokenizer(), D.Fuse()
    yield "bert", t
    t = words()
    t.normalizer = N.Sequence([N.NFKD(), N.Strip(True, False), N.Replace(Regex("[xy]+|\\d(?=a)"), "q")])
    t.pre_tokenizer = P.Sequence([P.WhitespaceSplit(), P.Punctuation("merged_with_previous"), P.Digits(False)])
    t.decoder = D.Sequence([D.Replace(Regex("[ae]"), "\u00e6"), D.Strip("n", 0, 1), D.Strip("b", 1, 0)])
    yield "digits", t
    for how in ("removed", "isolated", "contiguous", "merged_with_previous", "merged_with_next"):
        t = words()
        t.pre_tokenizer = P.Sequence([P.Punctuation(how), P.Split("e", how), P.Split(Regex("[ao]+|(?=s)"), how, invert=how < "m"),
                                      P.CharDelimiterSplit("i")])
        t.decoder = D.Fuse()
        yield "cut_" + how, t
    for i in range(0, len(CLASSES), 6):
        t = words()
        t.pre_tokenizer = P.Sequence([P.Split(Regex(x), "isolated") for x in CLASSES[i:i + 6]])
        t.decoder = D.Fuse()
        yield "classes%d" % (i // 6), t
    t = bpe(["a", "\0", "a\0", "\0\0", "b", " "], [("a", "\0"), ("\0", "\0")])
    t.decoder = D.Fuse()
    t.add_tokens([AddedToken("\0b", normalized=False)])
    yield "nul", t


def pieces():
    """sentencepiece models: name, options."""
    common = dict(model_type="bpe", normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2, num_threads=1,
                  character_coverage=0.999, hard_vocab_limit=False)
    yield "pieces", dict(common, vocab_size=400, byte_fallback=True)
    yield "pieces_user", dict(common, vocab_size=420, byte_fallback=True, add_dummy_prefix=False, bos_id=2, eos_id=1, pad_id=3,
                              user_defined_symbols=["<|a|>", "<|a|>b", MARK * 2, MARK * 4, "ab", "\n", "1", "\u4e2d"])
    yield "pieces_unk", dict(common, vocab_size=150, byte_fallback=False, bos_id=-1, control_symbols=["<c>"])


def ranks(count):
    """A rank file of `count` tokens: bytes, pairs of bytes, then triples; like rank_file() of test_tokenizer.c."""
    def token(i):
        if i < 256:
            return bytes([i])
        if i < 256 + 65536:
            return bytes([(i - 256) >> 8, (i - 256) & 255])
        j = i - 256 - 65536
        return bytes([32 + (j >> 16), j >> 8 & 255, j & 255])
    return b"".join(base64.b64encode(token(i)) + b" %d\n" % i for i in range(count))


# ---- vectors ------------------------------------------------------------------------------------------------------

def spell(text):
    data = text if isinstance(text, bytes) else text.encode()
    return "".join(chr(b) if 33 <= b <= 126 and b != 92 else "\\%02x" % b for b in data) or "\\"


def random_ids(r, ref, vocab, encoded):
    ids = [r.randrange(vocab) for _ in range(r.randrange(6))]
    if encoded and r.random() < .6:
        k = r.randrange(len(encoded))
        ids[1:1] = encoded[k:k + 12]
    names = getattr(ref, "front", [])
    for _ in range(r.randrange(3) if names else 0):
        ids.insert(r.choice((0, r.randrange(len(ids) + 1))), r.choice(names))
    run = [compare.ours_byte(ref, r.randrange(256)) for _ in range(r.randrange(5))] if r.random() < .5 else []
    k = r.randrange(len(ids) + 1)
    return ids[:k] + [b for b in run if b is not None] + ids[k:]


def write_vectors(out, name, ref, vocab, n_encode=N_ENCODE, n_decode=N_DECODE, plain=False):
    r = random.Random("%d %s" % (SEED, name))
    words = ref.words() + (TEXT[:200] if vocab < 5000 else TEXT)
    if isinstance(ref, compare.Whole):
        added = ref.t.get_added_tokens_decoder()
        ref.front = sorted(added)
        words += [added[i].content for i in ref.front] * 40
    out.write("file %s\n" % name)
    last = []
    texts = [""] + [r.choice(TEXT) for _ in range(4)] + [compare.random_text(r, words)[:60] for _ in range(n_encode - 5)]
    for text in texts:
        if plain and (MARK in text or "<" in text):
            continue
        last = ref.encode(text)
        out.write("e %s %s\n" % (spell(text), " ".join(map(str, last))))
        if name.endswith(".json") and r.random() < .2:
            front = ref.encode_bos(text)
            out.write("b %s %s\n" % (spell(text), " ".join(map(str, front))))
    for _ in range(n_decode):
        ids = random_ids(r, ref, vocab, last)
        last = ref.encode(r.choice(TEXT))
        out.write("d %s %s\n" % (spell(ref.decode(ids)), " ".join(map(str, ids))))


def write_llama2c(sp, path):
    """The layout of llama2.c: spaces for U+2581, BOS and EOS on lines of their own."""
    n = sp.get_piece_size()
    text = ["\n<s>\n" if i == 1 else "\n</s>\n" if i == 2 else sp.id_to_piece(i).replace(MARK, " ") for i in range(n)]
    data = struct.pack("<i", max(len(s.encode()) for s in text))
    data += b"".join(struct.pack("<fi", sp.get_score(i), len(s.encode())) + s.encode() for i, s in enumerate(text))
    open(path, "wb").write(data)


def main():
    with open(os.path.join(HERE, "vectors.txt"), "w", newline="\n") as out:
        for name, t in jsons():
            if name.endswith("/"):                      # a folder with vocab.json and merges.txt
                os.makedirs(os.path.join(HERE, name), exist_ok=True)
                t.model.save(os.path.join(HERE, name))
                write_vectors(out, name[:-1], compare.Whole(t), t.get_vocab_size())
                continue
            path = os.path.join(HERE, name + ".json")
            text = json.dumps(json.loads(t.to_str()), ensure_ascii=False, separators=(",", ":"))
            open(path, "w", encoding="utf-8", newline="\n").write(text + "\n")
            t = Tokenizer.from_file(path)
            write_vectors(out, name + ".json", compare.Whole(t), t.get_vocab_size())
        with tempfile.TemporaryDirectory() as tmp:
            text = os.path.join(tmp, "text")
            open(text, "w", encoding="utf-8").write("\n".join(s.replace("\n", "") for s in TEXT))
            for name, options in pieces():
                sentencepiece.SentencePieceTrainer.train(input=text, model_prefix=os.path.join(tmp, name), **options)
                path = os.path.join(HERE, name + ".model")
                open(path, "wb").write(open(os.path.join(tmp, name + ".model"), "rb").read().replace(tmp.encode(), b"." * len(tmp)))
                ref = compare.Pieces(path)
                write_vectors(out, name + ".model", ref, ref.sp.get_piece_size())
                if name == "pieces":
                    write_llama2c(ref.sp, os.path.join(HERE, "pieces.bin"))
                    write_vectors(out, "pieces.bin", ref, ref.sp.get_piece_size(), plain=True)
            for count in sorted(compare.FAMILY):
                path = os.path.join(tmp, "ranks.tiktoken")
                open(path, "wb").write(ranks(count))
                ref = compare.Whole(compare.from_ranks(path))
                ref.words = lambda: []
                write_vectors(out, "ranks %d" % count, ref, count, 32, 8)


main()

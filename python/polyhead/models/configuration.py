"""Reads the configuration of a model: its row of the table, what the file leaves out, and its layers."""
from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from typing import Any, Callable, Mapping, Union

from .. import options
from ..error import refuse
from .decoder import Config
from .layer import Layer
from .table import MODELS

# Of which null is a value: such a model has none of it.
NULLS = ("sliding_window", "q_lora_rank", "attn_logit_softcapping")


def load(path: Union[str, "os.PathLike[str]"]) -> dict[str, Any]:
    """The content of a config.json."""
    name = os.fspath(path)
    try:
        found = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise refuse("%s: cannot read it: %s" % (name, error.strerror)) from error
    except (ValueError, RecursionError) as error:  # also of text that is no UTF-8
        raise refuse("%s: found no JSON, expected a config.json: %s" % (name, error)) from error
    if not isinstance(found, dict):
        raise refuse("%s: found a JSON %s, expected an object" % (name, type(found).__name__))
    return found


def layers_of(config: Any) -> list[Layer]:
    """The kinds of attention layers of a model, in the order of their first layers.

    config: the content of its config.json as a dict, or an object with to_dict(). Of a model of several parts the text model is taken.
    """
    if not isinstance(config, Mapping) and not hasattr(config, "to_dict"):
        raise TypeError("config: found %s, expected the content of config.json as a dict" % options.found_text(config))
    given = config if isinstance(config, Mapping) else config.to_dict()
    if not is_known(given.get("model_type")) and isinstance(given.get("text_config"), Mapping):
        given = given["text_config"]
    model_type = given.get("model_type")
    if not is_known(model_type):
        raise refuse("model_type: found %s, expected %s" % (options.found_text(model_type), options.one_of(*MODELS).expected)
                     + options.nearest(model_type, list(MODELS)))
    row = MODELS[model_type]
    kept = {name: value for name, value in given.items() if value is not None or name in NULLS}
    usual = {name: value for name, value in row.defaults.items() if name != "rope_parameters" or "rope_scaling" not in kept}  # of older files
    return _grouped(row.layers, Config(model_type, {**usual, **kept}))


def is_known(model_type: Any) -> bool:
    return isinstance(model_type, str) and model_type in MODELS


def _grouped(make: Callable[[Config], list[Layer]], config: Config) -> list[Layer]:
    """One Layer for all layers that have the same kernel and the same calls."""
    kinds: dict[Any, list[Layer]] = {}
    for layer in make(config):
        kinds.setdefault((layer.kind, repr(layer.fields), repr(layer.numbers)), []).append(layer)
    return [dataclasses.replace(same[0], layers=tuple(one.layers[0] for one in same)) for same in kinds.values()]

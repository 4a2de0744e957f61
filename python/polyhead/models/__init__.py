"""The attention layers of known models: from a config.json to the fields, numbers, tables and weights of polyhead's layers.

    layers = polyhead.models.layers_of(json.load(open("config.json")))
    kernel = polyhead.compile(**layers[0].fields)

See docs/guides/models.md.
"""
from .configuration import layers_of, load
from .counts import Counts, counts_of
from .layer import Layer
from .table import MODELS

__all__ = ["MODELS", "Counts", "Layer", "counts_of", "layers_of", "load"]

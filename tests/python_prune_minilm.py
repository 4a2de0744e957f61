"""The pruning example: its encoder against stored embeddings, and importance against random removal."""
import pathlib
import sys
import unittest

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "examples" / "050_prune_minilm"))

import run as example  # noqa: E402
from encoder import NUM_HEADS, NUM_LAYERS, Encoder, model_dir  # noqa: E402


class PruneMiniLM(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.encoder = Encoder(model_dir())
        with np.load(HERE / "data" / "minilm_reference.npz") as stored:
            cls.ids, cls.lengths, cls.embedding = stored["input_ids"], stored["lengths"], stored["embedding"]

    def test_encoder(self):
        for gates in (None, np.ones((NUM_LAYERS, NUM_HEADS), np.float32)):
            found = self.encoder.embed(self.ids, self.lengths, gates)
            np.testing.assert_allclose(found, self.embedding, rtol=0, atol=2e-6)

    def test_importance_beats_random_removal(self):
        measure, held = (self.ids[:4], self.lengths[:4]), (self.ids[4:], self.lengths[4:])
        importance = example.importance_of(self.encoder, *measure)
        found = example.curves(self.encoder, importance, *held, [0, 18, 36], 3)
        self.assertLess(np.abs(found["ablation"][0]).max(), 1e-6)
        for name in importance:
            for i in (1, 2):
                self.assertLess(found[name][i, 0], found["random"][:, i, 0].min(), (name, i))
        kept = example.prune.kept_heads(importance["ablation"], 18)
        layers = [layer.keep(heads) for layer, heads in zip(self.encoder.layers, kept)]
        gated = self.encoder.embed(*held, example.gates_of(kept))
        np.testing.assert_allclose(self.encoder.embed(*held, layers=layers), gated, rtol=0, atol=2e-6)


if __name__ == "__main__":
    unittest.main()

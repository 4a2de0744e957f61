"""./polyhead prune: the file and the report that it writes, and refusals after which nothing is written."""
import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import numpy as np
from python_prune import EMBED_DIM, HEADS, LENGTHS, random_state, random_tokens
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from polyhead import prune, prune_command


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.weights, self.out = self.folder / "layer.safetensors", self.folder / "out"
        state = random_state()
        state["out_proj.weight"][:, 20:40] = 0  # head 1 is dead
        save_file(state, self.weights)
        np.save(self.folder / "x.npy", random_tokens())

    def run_command(self, *arguments, weights=None, heads=HEADS):
        """Status, standard output, standard error."""
        out, err = io.StringIO(), io.StringIO()
        line = ["--weights", weights or self.weights, "--num-heads", heads, "-o", self.out, *arguments]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = prune_command.main([str(word) for word in line])
            except SystemExit as leave:
                status = leave.code
        return status, out.getvalue(), err.getvalue()

    def refused(self, words, *arguments, **options):
        before = sorted(self.folder.iterdir())
        status, out, err = self.run_command(*arguments, **options)
        with self.subTest(words):
            self.assertNotEqual(status, 0)
            self.assertEqual(out, "")
            self.assertIn(words, err)
            self.assertTrue(err.startswith("usage: ") or err.count("\n") == 1, err)
            self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_removes_the_dead_head(self):
        for by in ("ablation", "output_norm"):
            status, out, err = self.run_command("--input", self.folder / "x.npy", "--remove", 1, "--by", by, "--rounds", 1, "--json")
            self.assertEqual((status, err), (0, ""))
            report = json.loads(out)
            self.assertEqual((report["by"], report["ranked"][0], report["importance"][1]), (by, 1, 0.0))
            self.assertEqual(report["kept"], [0, 2, 3, 4, 5])
            self.assertLess(report["output_change"], 1e-6)
            self.assertEqual([p.name for p in self.out.iterdir()], ["pruned.safetensors"])
            self.assertEqual(report["file_bytes"], (self.out / "pruned.safetensors").stat().st_size)
            self.assertLess(report["weights_bytes"][1], report["weights_bytes"][0])
            self.assertGreater(min(report["milliseconds"]), 0)
        with safe_open(self.out / "pruned.safetensors", "numpy") as file:
            self.assertEqual((file.metadata()["num_heads"], file.metadata()["kept"]), ("5", "0,2,3,4,5"))
        x = random_tokens()
        whole, pruned = prune.load(self.weights, HEADS), prune.load(self.out / "pruned.safetensors", 5)
        np.testing.assert_allclose(pruned(x), whole(x), rtol=1e-5, atol=1e-5)

    def test_keeps_a_list_without_data(self):
        status, out, err = self.run_command("--keep", "0,3-4", "--name", "small", "--rounds", 0)
        self.assertEqual((status, err), (0, ""))
        lines = out.splitlines()
        self.assertIn("kept     3 of 6 heads: 0 3 4", lines)
        self.assertTrue(lines[-1].startswith("./polyhead generate small --op mha --embed-dim 48 --num-heads 3 "), lines[-1])
        self.assertFalse(any(line.startswith("time") for line in lines))
        self.assertEqual(load_file(self.out / "small.safetensors")["out_proj.weight"].shape, (EMBED_DIM, 60))

    def test_only_ranks(self):
        np.savez(self.folder / "x.npz", query=random_tokens(), kv_lengths=LENGTHS)
        status, out, _ = self.run_command("--input", self.folder / "x.npz")
        self.assertEqual(status, 0)
        self.assertEqual(out.splitlines()[0], "heads by ablation, least important first:")
        self.assertEqual(out.splitlines()[1].split(), ["1", "0"])
        self.assertEqual(len(out.splitlines()), 1 + HEADS)
        self.assertFalse(self.out.exists())

    def test_refusals_of_heads(self):
        data = ("--input", self.folder / "x.npy")
        self.refused("remove: found 6 of 6 heads, expected at most 5", *data, "--remove", 6)
        self.refused("remove: found 1.0", *data, "--remove", "1.0")
        self.refused("remove: found 'few'", *data, "--remove", "few")
        self.refused("keep: found head 6, expected heads 0 to 5", "--keep", "0,6")
        self.refused("keep: found '', expected heads such as", "--keep", "")
        self.refused("keep: found '4-2', expected heads such as", "--keep", "4-2")
        self.refused("keep: found head 1 twice", "--keep", "1,0-2")
        self.refused("not allowed with argument", *data, "--keep", "1", "--remove", "1")
        self.refused("input: missing, expected --input data.npy [batch, seq_len, 48]", "--remove", 2)
        self.refused("out_proj.weight: 120 columns, expected a multiple of 7", *data, heads=7)

    def test_refusals_of_files(self):
        bad = self.folder / "bad"
        bad.mkdir()
        (bad / "text").write_text("nothing")
        np.save(bad / "wide.npy", random_tokens(shape=(2, 9, 49)))
        np.save(bad / "int.npy", np.zeros((2, 9, EMBED_DIM), np.int32))
        np.save(bad / "nan.npy", np.full((2, 9, EMBED_DIM), np.nan, np.float32))
        np.savez(bad / "names.npz", tokens=random_tokens())
        np.savez(bad / "lengths.npz", query=random_tokens(), kv_lengths=LENGTHS + 1)
        save_file({"l.0." + name: tensor for name, tensor in random_state().items()}, bad / "model")
        for words, name in (("as .npy or .npz", "text"), ("as .npy or .npz", "absent"), ("query: found [2, 9, 49], expected [batch", "wide.npy"),
                            ("query: dtype int32", "int.npy"), ("query: found NaN", "nan.npy"), ("input: found 'tokens'", "names.npz"),
                            ("kv_lengths: found [2]", "lengths.npz")):
            self.refused(words, "--input", bad / name, "--remove", 1)
        for words, name in (("as a safetensors file", "text"), ("as a safetensors file", "absent"), ("expected 'l.0.'", "model")):
            self.refused(words, "--keep", "1", weights=bad / name)
        self.refused("is the file of the weights", "--keep", "1", "--name", "layer", "-o", self.folder)


if __name__ == "__main__":
    unittest.main()

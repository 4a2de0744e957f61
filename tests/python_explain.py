"""The explain command: the variant of each length, manifests and names of the table, and refusals in one sentence."""
import contextlib
import io
import os
import pathlib
import tempfile
import unittest

import polyhead
from polyhead import explain_command
from tier import sampled_cases

SOURCE = pathlib.Path(__file__).resolve().parent.parent


def run(*words):
    """(status, what was printed, what was complained about)"""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = explain_command.main([str(word) for word in words])
    return status, out.getvalue(), err.getvalue()


class Explain(unittest.TestCase):
    def test_every_length_has_its_variant(self):
        status, text, _ = run("--op", "sdpa", "--num-heads", 4, "--num-kv-heads", 2, "--head-dim", 32, "--query-length", "1,40", "--key-length", "300")
        self.assertEqual(status, 0)
        decode, prefill = text.split("kernel: ")[1:]
        self.assertIn("seq_len_q 1, seq_len_kv 300", decode)
        self.assertIn("frame=head_lanes", decode)
        self.assertIn("not polyhead_kernel_0: serves seq_len_q ", decode + prefill)  # records decide which of them comes first
        self.assertIn("frame=query_lanes", prefill)
        self.assertRegex(decode, r"\n    split_len: \d+ keys are one task; they take \d+ KB")
        self.assertRegex(prefill, r"\n    q_tile, key_panel: \d+ x \d+ scores in registers")

    def test_fixed_lengths_and_threads(self):
        status, text, _ = run("--op", "sdpa", "--num-heads", 1, "--head-dim", 8, "--seq-len-q", 20, "--seq-len-kv", 30, "--threads", 3, "--batch", 2)
        self.assertEqual(status, 0)
        self.assertIn("batch 2, seq_len_q 20, seq_len_kv 30, 3 threads", text)
        polyhead.set_num_threads(0)

    def test_layers_have_weights(self):
        for flags in (["--op", "mha", "--embed-dim", 32, "--num-heads", 2, "--bias", "--cross", "--kdim", 24], ["--op", "linear", "--embed-dim", 32, "--out-features", 9]):
            status, text, complaint = run(*flags, "--query-length", 5)
            self.assertEqual((status, complaint), (0, ""))
            self.assertRegex(text, "runs polyhead_kernel_[01]: ")  # a linear layer may have a variant for fewer rows

    def test_gradients_of_a_linear_layer(self):
        status, text, complaint = run("--op", "linear_backward", "--embed-dim", 32, "--out-features", 9, "--dtype", "bf16", "--f32-weights", "--query-length", "0,5")
        self.assertEqual((status, complaint), (0, ""))
        self.assertIn("0 rows", text)
        self.assertIn("gradients are 0", text)
        self.assertRegex(text, "5 rows.*\n  runs polyhead_kernel_0: .* tiling frame=linear_gradients ")

    def test_a_layer_with_a_cache_has_lengths_of_its_own(self):
        for pages in ([], ["--page-size", 16]):
            status, text, complaint = run("--op", "mha", "--embed-dim", 64, "--num-heads", 4, "--cache", *pages, "--query-length", "1,40", "--key-length", 96)
            self.assertEqual((status, complaint), (0, ""))
            step, prompt = text.split("kernel: ")[1:]
            self.assertIn("seq_len_q 1, seq_len_kv 96", step)
            self.assertIn("frame=head_lanes", step)
            self.assertIn("frame=query_lanes", prompt)

    def test_names_and_manifests(self):
        os.environ["POLYHEAD_TUNE_SOURCE"] = str(SOURCE)
        self.assertIn("frame=query_lanes", run("sdpa_h2_d1")[1])
        with tempfile.TemporaryDirectory() as folder:
            polyhead.compile("sdpa", num_heads=1, head_dim=16).export(folder, "mine")
            self.assertIn("frame=query_lanes", run(os.path.join(folder, "mine.json"), "--query-length", 99)[1])

    def test_refusals(self):
        for words, sentence in (([], "kernel: found none"), (["no_such"], "kernel: found 'no_such'"), (["minilm_layer", "--op", "sdpa"], "expected one of them"),
                                (["--op", "sdpa", "--num-heads", 1, "--head-dim", 8, "--query-length", "many"], "query-length: found 'many'"),
                                (["--op", "sdpa", "--num-heads", 1, "--head-dim", 8, "--batch=-1"], "found --batch -1"),
                                (["--op", "sdpa", "--num-heads", 1, "--head-dim", 8, "--batch", 999999, "--query-length", "999999999"], "more than this machine"),
                                (["--op", "sdpa", "--num-heads", 0, "--head-dim", 8], "num_heads")):
            status, _, complaint = run(*words)
            self.assertEqual(status, 1)
            self.assertIn(sentence, complaint)
            self.assertEqual(complaint.count("\n"), 1)


load_tests = sampled_cases(__file__, 2)

if __name__ == "__main__":
    unittest.main()

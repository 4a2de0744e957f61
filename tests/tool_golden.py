"""The code of kernels is that of golden/: a sample of the table, and what the hashes see and do not see."""
import argparse
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
from command import golden

FLAGS = ["--op", "sdpa", "--num-heads", "2", "--head-dim", "16", "--lse", "--no-tuned", "--untested-target", "--target"]


class Golden(unittest.TestCase):
    def test_a_sample_of_the_table(self):
        every = golden.items()
        chosen = golden.sample(every, os.environ.get("POLYHEAD_SWEEP_SEED", "1"))
        found = list(golden.differences(chosen, every, golden.make(chosen, every)))
        self.assertEqual(found, [], "./polyhead golden --write writes the hashes of the code as it is now")

    def test_every_kernel_and_target_has_a_line(self):
        lines = {(file, *key) for file in golden.FILES for key in golden.read(file)}
        self.assertEqual(lines, set(golden.items()))

    def test_the_name_of_a_kernel_is_not_seen_and_its_problem_is(self):
        for target in (golden.CPU_TARGETS["avx2"], golden.GPU_TARGETS["opencl"]):
            first = golden.lowered(["first"] + FLAGS + [target])
            self.assertRegex(first, r"^[0-9a-f]{12}")
            self.assertEqual(golden.lowered(["another_name"] + FLAGS + [target]), first)
            self.assertNotEqual(golden.lowered(["first"] + FLAGS + [target, "--kv-lengths"]), first)
            self.assertNotEqual(golden.lowered(["first"] + FLAGS + [target, "--tiling", "row_tile=1"]), first)

    def test_a_refusal_is_its_sentence(self):
        self.assertRegex(golden.lowered(["first", "--op", "sdpa"]), "^polyhead generate: --num-heads: missing, expected 1 to 128")

    def test_assembly(self):
        loop = '\t.text\npolyhead_k_0123456789abcdef_0:\n.LBB0_1: # %"for f"\n\tvaddps\t%ymm1, %ymm2, %ymm3 # x\n\tcallq\tpolyhead_malloc\n\tjmp\t.LBB0_1\n\tleaq\tf.par_for(%rip), %rdi\n'
        self.assertEqual(golden.instructions(loop), golden.instructions(loop.replace("f.par_for", "other$1.par_for")))
        for old, new in (("vaddps", "vsubps"), ("ymm3", "ymm4"), ("polyhead_malloc", "polyhead_free"), ("\tjmp", "\tje")):
            self.assertNotEqual(golden.instructions(loop), golden.instructions(loop.replace(old, new)), old)

    def test_lines_without_a_kernel_are_named(self):
        found = list(golden.differences([], {}, {}))
        self.assertEqual(len(found), sum(len(golden.read(file)) for file in golden.FILES))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--generate", metavar="PATH", required=True, help="polyhead-generate of the build that is tested")
    options, others = parser.parse_known_args()
    golden.generator = lambda: options.generate
    unittest.main(argv=sys.argv[:1] + others)

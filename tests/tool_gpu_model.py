"""The model of the speed of GPU kernels: how it reads loops, what its run makes of small kernels, and whether it agrees with published ones."""
import os
import sys
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "instruments", "gpu_model"), os.path.join(ROOT, "instruments", "gpu_code")]
import command  # noqa: E402
import emitted  # noqa: E402
import listing  # noqa: E402
import machines  # noqa: E402
import model  # noqa: E402

H100 = machines.numbers("h100")
# Rates that make small numbers.
SIMPLE = dict(H100, mma_share=1.0, group_share=1.0, l2_of_device=1e9, memory_latency=0, multiprocessors=1, gigahertz=1.0)


def sass(*lines):
    return "".join("%s:\n" % text if text[0] == "." else "        /*%04x*/                   %s ;\n" % (16 * at, text) for at, text in enumerate(lines))


# A loop with a part that a branch leaves out, and a longer one with products.
LOOP = sass("MOV R1, R2", ".L_1", "HMMA.16816.F32 R4, R8, R10, R4", "VOTE.ANY P0, P0", "@!P0 BRA `(.L_2)", "FMUL R3, R3, R5", "FMUL R4, R4, R5", ".L_2", "NOP",
            "MUFU.EX2 R1, R1", "@P1 BRA `(.L_1)", ".L_3", "HMMA.16816.F32 R4, R8, R10, R4", "@P0 BRA `(.L_4)", "ISETP R1", "ISETP R2", "ISETP R2", "ISETP R2",
            "ISETP R2", "ISETP R3", "ISETP R4", ".L_4", "@P1 BRA `(.L_3)", "EXIT")
GROUPS = [("BAR.SYNC", " 0x0"), ("LDGSTS.E", " [R1]"), ("HGMMA.64x128x16.F32", " R24, gdesc[UR20], RZ"), ("HGMMA.64x128x16.F32", " R24, gdesc[UR20], R24, gsb0"),
          ("HGMMA.64x64x16.F32", " R88, R120, gsb0"), ("WARPGROUP.DEPBAR.LE", " gsb0, 0x1"), ("FMNMX", ""), ("VOTE.ANY", ""), ("MUFU.EX2", ""),
          ("WARPGROUP.DEPBAR.LE", " gsb0, 0x0"), ("FMUL", "")]

# Barriers in memory: one is waited for in the chunk after that of the arrival, the other at once.
PHASES = [("SYNCS.PHASECHK.TRANS64.TRYWAIT", " P0, [UR24+0x1c000], R158"), ("VOTE.ALL", " P0, P0"), ("HGMMA.64x128x16.F32", " R24, gdesc[UR20], R24, gsb0"),
          ("SYNCS.ARRIVE.TRANS64.A1T0", " RZ, [UR24+0x1c000], RZ"), ("SYNCS.ARRIVE.TRANS64.A1T0", " RZ, [UR24+0x1c008], RZ"), ("FMUL", ""),
          ("SYNCS.PHASECHK.TRANS64.TRYWAIT", " P0, [UR24+0x1c008], R158")]


def kernel(steps, warps=4, blocks=1, **more):
    return model.Kernel("a kernel", 64, 128, 128, warps, blocks, steps, **more)


def cycles(steps, chunks=1, **more):
    return model.Run(kernel(steps, **more), SIMPLE, chunks).cycles()


class Reading(unittest.TestCase):
    def test_what_branches_leave_out_is_not_of_the_loop(self):
        self.assertEqual([opcode for opcode, _ in listing.steady_loop(LOOP)], ["HMMA.16816.F32", "VOTE.ANY", "BRA", "MUFU.EX2", "BRA"])
        self.assertEqual(listing.steady_loop(LOOP, "HGMMA"), [])

    def test_steps_of_warps(self):
        steps = model.steps_of(listing.steady_loop(LOOP) + [("BAR.SYNC", "")], SIMPLE)
        self.assertEqual(steps, [("barrier",), ("work", {"HMMA": 1}), ("work", {"VOTE": 1}), ("work", {"BRA": 2, "MUFU": 1})])

    def test_steps_of_groups_are_in_the_order_of_the_code(self):
        self.assertEqual(model.steps_of(GROUPS, SIMPLE), [
            ("barrier",), ("work", {"LDGSTS": 1, "HGMMA": 2}), ("product", 128.0), ("work", {"HGMMA": 1}), ("product", 32.0), ("wait", 1),
            ("work", {"FMNMX": 1, "VOTE": 1}), ("work", {"MUFU": 1}), ("wait", 0), ("work", {"FMUL": 1})])

    def test_who_waits_for_a_phase_waits_for_the_arrivals_there(self):
        self.assertEqual(model.steps_of(PHASES, SIMPLE), [
            ("phase", 4), ("work", {"VOTE": 1}), ("work", {"HGMMA": 1}), ("product", 64.0), ("arrival",), ("arrival",), ("work", {"FMUL": 1}), ("phase", 2)])
        with self.assertRaisesRegex(ValueError, r"waits at \[UR24\+0x1c008\]"):
            model.steps_of([line for line in PHASES if line[1] != " RZ, [UR24+0x1c008], RZ"], SIMPLE)

    def test_layers_and_floats_have_no_prediction(self):
        def manifest(op, dtype, frame):
            return {"problem": {"op": op, "dtype": dtype}, "variants": [{"frame": "split_rows"}, {"frame": frame}]}

        modelled = [manifest("sdpa", "f16", "warp_tiles"), manifest("sdpa", "bf16", "group_tiles")]
        others = [manifest("mha", "f16", "warp_tiles"), manifest("sdpa", "f32", "warp_tiles"), manifest("sdpa", "f16", "thread_rows")]
        self.assertEqual([emitted.is_modelled(one) for one in modelled + others], [True, True, False, False, False])
        with self.assertRaisesRegex(emitted.NotRead, "expected attention of 16 bits"):
            emitted.variant_of(others[0])

    def test_blocks_at_once(self):
        self.assertEqual(emitted.blocks_at_once(253, 128, 49152, H100), 2)    # by registers
        self.assertEqual(emitted.blocks_at_once(64, 128, 100 << 10, H100), 2)  # by shared memory


class Running(unittest.TestCase):
    def test_needs(self):
        found = model.needs({"MUFU": 2, "FFMA": 3, "FMNMX": 4, "LDSM": 1, "HMMA": 1, "BRA": 1}, SIMPLE)
        self.assertEqual(found, {"issue": 12, "mufu": 16.0, "fp32": 3.0, "half": 8.0, "shared": 16.0, "tensor": 4.0})

    def test_a_step_takes_as_long_as_its_busiest_resource(self):
        self.assertAlmostEqual(cycles([("work", {"MUFU": 2, "FFMA": 3})], chunks=5), 5 * 16)

    def test_warps_share_what_they_need(self):
        self.assertAlmostEqual(cycles([("work", {"MUFU": 2})], warps=8), 32)
        self.assertAlmostEqual(cycles([("work", {"MUFU": 2})], blocks=3), 48)
        self.assertAlmostEqual(cycles([("work", {"MUFU": 2})], warps=2, blocks=4), 32)  # a block has warps on two schedulers

    def test_products_of_warps_stay_in_step(self):
        one = cycles([("work", {"HMMA": 10}), ("work", {"MUFU": 5})])
        self.assertAlmostEqual(one, 40 + 40)
        self.assertAlmostEqual(cycles([("work", {"HMMA": 10}), ("work", {"MUFU": 5})], chunks=7, blocks=2), 7 * 2 * one)

    def test_products_of_groups_take_turns(self):
        # Alone: product, then powers. Two groups that begin together end their products together, and have their powers at the same time.
        steps = [("product", 40.0), ("wait", 0), ("work", {"MUFU": 5})]
        self.assertAlmostEqual(cycles(steps, chunks=10), 10 * 80)
        self.assertAlmostEqual(cycles(steps, chunks=10, warps=8), 10 * 160)
        # Products of one group stay in their order: the powers run beside the second ones, which end at 2 * (40 + 100).
        overlapped = [("product", 40.0), ("product", 100.0), ("wait", 1), ("work", {"MUFU": 5}), ("wait", 0)]
        self.assertAlmostEqual(cycles(overlapped, warps=8), 280)

    def test_a_wait_leaves_the_newest_products(self):
        # The second product ends after the powers.
        steps = [("product", 40.0), ("product", 100.0), ("wait", 1), ("work", {"MUFU": 5}), ("wait", 0)]
        self.assertAlmostEqual(cycles(steps), 140)
        self.assertAlmostEqual(cycles([("product", 40.0), ("product", 100.0), ("wait", 0), ("work", {"MUFU": 5})]), 180)

    def test_a_barrier_is_of_a_block(self):
        # One of two warps comes to the barrier after 40: the other one waits for it, if it is of the same block.
        for blocks, expected in ((1, 40 + 16), (2, 40 + 8)):
            run = model.Run(kernel([("work", {"MUFU": 1}), ("barrier",), ("work", {"MUFU": 1})], warps=8 // blocks, blocks=blocks), SIMPLE, 1)
            run.warps[1].pause = 40
            self.assertAlmostEqual(run.cycles(), expected)

    def test_a_phase_ends_when_all_of_the_block_have_arrived(self):
        # The second group begins 40 later: the first one goes on when it arrives, and not when it is as far.
        def apart(steps, **more):
            return model.Run(kernel(steps, **more), SIMPLE, 2, apart=40).cycles()

        steps = [("product", 40.0), ("wait", 0), ("arrival",), ("work", {"MUFU": 5}), ("phase", 2)]
        self.assertAlmostEqual(apart(steps, warps=8), 40 + 80 + 80)
        self.assertAlmostEqual(apart([*steps[:4], ("barrier",)], warps=8), 120 + 160)  # in step from the second chunk on
        # Where they arrive last it is a barrier of the block; in the first chunk nobody waits for the arrivals of the one before.
        late = [("phase", 1), ("product", 40.0), ("wait", 0), ("work", {"MUFU": 5}), ("arrival",)]
        self.assertAlmostEqual(apart(late, warps=8), 120 + 160)
        self.assertAlmostEqual(apart(late, blocks=2), 40 + 80 + 80)

    def test_groups_that_do_not_begin_together_drift_apart(self):
        steps = [("product", 40.0), ("wait", 0), ("work", {"MUFU": 5})]
        in_step, apart = (model.Run(kernel(steps, warps=8), SIMPLE, 20, apart).cycles() for apart in (0, 40))
        self.assertAlmostEqual(in_step, 20 * 160)
        self.assertAlmostEqual(apart, 40 + 20 * 80)
        # Only groups of warps have products under way while they go on.
        for steps, ratio in ((steps, 1.5), ([("work", {"HMMA": 10}), ("work", {"MUFU": 5})], 1)):
            one = kernel(steps, warps=8)
            machine = dict(SIMPLE, memory_latency=40)
            found = [model.predict(one, machine, model.Shape(1, 1, 1024), apart)["tflops"] for apart in (False, True)]
            self.assertGreaterEqual(found[1] / found[0], ratio)

    def test_an_exchange_is_waited_for(self):
        self.assertAlmostEqual(cycles([("work", {"SHFL": 2})]), 2 * (H100["shared_latency"] + H100["latency"]))

    def test_predictions_count_rounds_and_what_causal_rows_see(self):
        steps = [("work", {"MUFU": 16})]
        whole = model.predict(kernel(steps), SIMPLE, model.Shape(1, 1, 512))      # 4 blocks of 4 chunks of 128 cycles
        self.assertAlmostEqual(whole["tflops"], 4 * 512 * 512 * 64 / (4 * 4 * 128 / 1e9) / 1e12)
        self.assertEqual(whole["binds"], "mufu")
        causal = model.predict(kernel(steps, causal=True), SIMPLE, model.Shape(1, 1, 512))  # 1 + 2 + 3 + 4 chunks
        self.assertAlmostEqual(causal["tflops"], 2 * 512 * 512 * 64 / (10 * 128 / 1e9) / 1e12)

    def test_keys_come_no_faster_than_the_cache_gives_them(self):
        slow = dict(SIMPLE, l2_of_device=64)
        found = model.predict(kernel([("work", {"MUFU": 1})]), slow, model.Shape(1, 1, 512))
        self.assertAlmostEqual(found["cycles"], 4 * 128 * 64 / 64)
        self.assertEqual(found["binds"], "L2")


class Published(unittest.TestCase):
    def test_the_model_agrees_with_published_kernels(self):
        ratios = {one.kernel.name: ratio for one, _, ratio in command.compared()}
        self.assertEqual(len(ratios), 12)
        self.assertEqual({name: ratio for name, ratio in ratios.items() if not command.LEAST <= ratio <= command.MOST}, {})

    def test_groups_apart_are_no_slower(self):
        for one, told, _ in command.compared():
            self.assertGreaterEqual(told["apart"], told["tflops"], one.kernel.name)

    def test_every_constant_has_a_source(self):
        for name, machine in machines.MACHINES.items():
            for what, (_, source) in machine.items():
                self.assertGreater(len(source), 10, "%s: %s" % (name, what))


class Recorded(unittest.TestCase):
    def test_the_document_has_what_the_model_makes_of_the_record(self):
        name, kernels = command.recorded(command.RECORD)
        machine = machines.numbers(name)
        rows = [(one, told, command.predicted(one, machine, model.common_shape(one.head_dim))) for one, told in kernels]
        with open(command.DOCUMENT, encoding="utf-8") as file:
            text = file.read()
        for marker, lines in (("gpu-model", command.kernel_lines(rows)), ("gpu-published", command.published_lines())):
            first, last = command.lines_between(text, marker)
            self.assertEqual(text[first:last].splitlines(), lines, "./polyhead bench gpu-model --write")
        by_name = {one.name: found["tflops"] for one, _, found in rows}
        for one in [one for one in by_name if "_f16_" in one]:
            self.assertLess(abs(by_name[one.replace("_f16_", "_bf16_")] / by_name[one] - 1), 0.01, one)


if __name__ == "__main__":
    unittest.main()

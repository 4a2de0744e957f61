"""The record of the model of the speed is that of the kernels of today: two of them are made again, one of each frame."""
import argparse
import os
import sys

INSTRUMENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "instruments")
sys.path[:0] = [os.path.join(INSTRUMENTS, "gpu_model"), os.path.join(INSTRUMENTS, "gpu_code")]
import command
import emitted
import machines
import model

KERNELS = ("warp_tiles_f16_d128", "group_tiles_f16_d64_causal")
MOST_APART = 0.05


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generate", metavar="PROGRAM", required=True, help="polyhead-generate")
    options = parser.parse_args()
    name, known = command.recorded(command.RECORD)
    machine, failed = machines.numbers(name), 0
    recorded = {one.name: one for one, _ in known}
    for case, frame, flags in [one for one in emitted.cases(name) if one[0] in KERNELS]:
        made, told, instructions = emitted.kernel(options.generate, case, frame, flags, name, machine)
        then, now = (model.predict(one, machine, model.common_shape(one.head_dim))["tflops"] for one in (recorded[case], made))
        print("%s: %d registers, %d instructions; recorded %.0f TFLOP/s, now %.0f" % (case, told["registers"], instructions, then, now))
        if abs(now / then - 1) > MOST_APART:
            print("FAILED %s: more than %.0f %% apart: ./polyhead bench gpu-model --write records the kernels of today" % (case, 100 * MOST_APART))
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

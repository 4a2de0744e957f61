"""./polyhead bench gpu-model: what the model of the speed predicts for this project's kernels, and for published ones. Measures nothing."""
import argparse
import dataclasses
import json
import os
import re
import sys

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gpu_code"))

import emitted
import machines
import model
import published

HERE = os.path.dirname(os.path.abspath(__file__))
RECORD, DOCUMENT = os.path.join(HERE, "recorded.json"), os.path.join(HERE, "..", "..", "docs", "measured", "gpu.md")
RESOURCES = ("tensor", "mufu", "half", "fp32", "issue", "shared", "L2")
LEAST, MOST = 0.85, 1.25  # predicted / published of a kernel, groups in step


def text_of_needs(needs, cycles):
    return " ".join("%4.0f" % (100 * needs.get(what, 0) / cycles) for what in RESOURCES)


def predicted(kernel, machine, shape):
    """What the model predicts if groups of warps stay in step, and as "apart" the TFLOP/s if they do not."""
    return dict(model.predict(kernel, machine, shape), apart=model.predict(kernel, machine, shape, apart=True)["tflops"])


def print_kernels(rows, machine):
    print("%s, %.0f TFLOP/s: predicted for B x T = 16,384, heads x head_dim = 2,048, T 4,096; how long each resource is in use, %% of the time" %
          (machine["name"], machines.peak(machine)))
    print("%-30s %6s %6s %6s %6s %6s %7s %6s %6s  %s  %s" % ("kernel", "rows", "keys", "blocks", "regs", "spills", "TFLOP/s", "apart", "share", " ".join("%4s" % x[:4] for x in RESOURCES), "binds"))
    for kernel, told, found in rows:
        print("%-30s %6d %6d %6d %6d %6d %7.0f %6.0f %6.2f  %s  %s" %
              (kernel.name, kernel.rows, kernel.keys, kernel.blocks, told["registers"], told["spilled"], found["tflops"], found["apart"], found["share"],
               text_of_needs(found["needs"], found["cycles"]), found["binds"]))


def compared():
    """[(what was published, what the model predicts of it, predicted / published)], on an H100."""
    machine = machines.numbers("h100")
    found = [(one, predicted(one.kernel, machine, one.shape)) for one in published.PUBLISHED]
    return [(one, told, told["tflops"] / one.tflops) for one, told in found]


def print_published():
    print("\nH100 SXM, structures of published kernels: predicted and published TFLOP/s")
    print("%-46s %9s %9s %9s %6s  %-16s %s" % ("kernel", "predicted", "apart", "published", "ratio", "binds", "structure; source of the figure"))
    for one, told, ratio in compared():
        outside = "" if LEAST <= ratio <= MOST else "  OUTSIDE of %.2f to %.2f" % (LEAST, MOST)
        print("%-46s %9.0f %9.0f %9.0f %6.2f  %-16s %s; %s%s" %
              (one.kernel.name, told["tflops"], told["apart"], one.tflops, ratio, told["binds"], one.structure, one.source, outside))


def apart_of(found):
    return "%.0f" % found["apart"] if found["apart"] != found["tflops"] else "the same"


def kernel_lines(rows):
    """A table for the document, of f16: in bf16 the predictions are the same."""
    lines = ["| kernel | registers | TFLOP/s | groups apart | share of the peak | tensor cores, MUFU, L2 in use | binds |", "|---|---|---|---|---|---|---|"]
    for kernel, told, found in (row for row in rows if "bf16" not in row[0].name):
        used = ", ".join("%.0f %%" % (100 * found["needs"].get(what, 0) / found["cycles"]) for what in ("tensor", "mufu", "L2"))
        lines.append("| %s | %d | %.0f | %s | %.2f | %s | %s |" %
                     (kernel.name, told["registers"], found["tflops"], apart_of(found), found["share"], used, found["binds"].split(" (")[0]))
    return lines


def published_lines():
    lines = ["| published kernel | structure | predicted | groups apart | published | ratio |", "|---|---|---|---|---|---|"]
    return lines + ["| %s | %s | %.0f | %s | %.0f | %.2f |" % (one.kernel.name, one.structure, told["tflops"], apart_of(told), one.tflops, ratio)
                    for one, told, ratio in compared()]


def lines_between(text, marker):
    """(first, last): where the lines between the two comments of the marker are."""
    begin, end = "<!-- %s: begin -->\n" % marker, "<!-- %s: end -->" % marker
    return text.index(begin) + len(begin), text.index(end)


def write_document(rows):
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    for marker, lines in (("gpu-model", kernel_lines(rows)), ("gpu-published", published_lines())):
        first, last = lines_between(text, marker)
        text = text[:first] + "\n".join(lines) + "\n" + text[last:]
    with open(DOCUMENT, "w", encoding="utf-8") as file:
        file.write(text)


def print_machine(name):
    print("\nconstants:")
    for what, (number, source) in machines.MACHINES[name].items():
        print("  %-16s %-12s %s" % (what, number, source))


def record(path, machine_name, rows):
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"machine": machine_name, "kernels": [dict(dataclasses.asdict(kernel), told=told) for kernel, told, _ in rows]}, file, indent=1)
        file.write("\n")


def recorded(path):
    """(machine, [(Kernel, what ptxas told of it)]) of a record."""
    with open(path, encoding="utf-8") as file:
        text = json.load(file)
    found = []
    for one in text["kernels"]:
        told, steps = one.pop("told"), [tuple(step) for step in one.pop("steps")]
        found.append((model.Kernel(steps=steps, **one), told))
    return text["machine"], found


def of_folder(folder, machine_name):
    """{kernel: TFLOP/s} of the kernels in a folder that the model is for."""
    machine, found = machines.numbers(machine_name), {}
    names = sorted(file[:-len(".json")] for file in os.listdir(folder) if file.endswith(".json"))
    for name in [one for one in names if emitted.is_modelled(emitted.manifest_of(folder, one))]:
        try:
            kernel, _, _ = emitted.read(folder, name, machine_name, machine)
            found[name] = model.predict(kernel, machine, model.common_shape(kernel.head_dim))["tflops"]
        except emitted.NotRead as sentence:
            print("%s: %s" % (name, sentence), file=sys.stderr)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generate", metavar="PROGRAM", help="polyhead-generate")
    parser.add_argument("--folder", metavar="DIR", help="print the TFLOP/s of the kernels that were generated into DIR, as JSON, and nothing else")
    parser.add_argument("--machine", choices=sorted(machines.MACHINES), default="h100")
    parser.add_argument("--filter", metavar="REGEX", default="", help="only the kernels whose names match")
    parser.add_argument("--tiling", metavar="KNOBS", default="", help="knobs beside the frame")
    parser.add_argument("--json", metavar="FILE", help="also write what was read of the kernels to FILE")
    parser.add_argument("--write", action="store_true", help="write the tables of docs/measured/gpu.md, and the record that a test compares them with")
    parser.add_argument("--constants", action="store_true", help="also print what is known of the machine, with sources")
    options = parser.parse_args()
    if options.folder:
        print(json.dumps(of_folder(options.folder, options.machine)))
        return 0
    if not options.generate:
        parser.error("expected --generate or --folder")
    if options.write and (options.filter or options.tiling or options.machine != "h100"):
        parser.error("--write: found with --filter, --tiling or another machine, expected alone")
    machine, rows, failed = machines.numbers(options.machine), [], 0
    for name, frame, flags in emitted.cases(options.machine, options.tiling):
        if not re.search(options.filter, name):
            continue
        try:
            kernel, told, _ = emitted.kernel(options.generate, name, frame, flags, options.machine, machine)
            rows.append((kernel, told, predicted(kernel, machine, model.common_shape(kernel.head_dim))))
        except emitted.NotRead as sentence:
            print("%s: %s" % (name, sentence), file=sys.stderr)
            failed += 1
    if rows:
        print_kernels(rows, machine)
    if options.json:
        record(options.json, options.machine, rows)
    if options.write and not failed:
        record(RECORD, options.machine, rows)
        write_document(rows)
    if options.machine == "h100":
        print_published()
    if options.constants:
        print_machine(options.machine)
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes docs/measured/conformance.md: the results of the ONNX node cases of Attention and FlexAttention with the Python package."""
import argparse
import pathlib
import sys

import onnx

import onnx_cases
import polyhead

TEXT = """# Conformance

This page has the results of the node cases of `onnx` {onnx} for Attention and FlexAttention. They run through `polyhead.sdpa` on the CPU.
`./polyhead conformance` writes this page. `tests/conformance/onnx_attention.py` maps a node to a call, and
`./polyhead test --label conformance` tests that a third of the cases, chosen by commit, pass; with `--all`, every case.

Every output of a case is compared as in the suite (`onnx.backend.test.runner`): same shape and dtype, error at most rtol {rtol} ·
|expected| + atol {atol}, for bfloat16 rtol 2^-6.

| operator | cases | pass |
|---|---|---|
{totals}

*dtype*: of the inputs and outputs, if it is not float32. Kernels store float16 and bfloat16 as they are; float64 becomes float32 on entry,
and outputs become float64 again. `softmax_precision` changes nothing, because sums are float32 in every kernel. FlexAttention's `score_mod`
becomes a [user expression](guides/expressions.md), its `prob_mod` becomes a factor per head.

| operator | case | dtype | result |
|---|---|---|---|
{rows}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    options = parser.parse_args()
    totals, rows, failures = [], [], 0
    for operator, cases in onnx_cases.collect().items():
        passed = 0
        for case in cases:
            try:
                difference = onnx_cases.run(case)
            except (polyhead.Error, TypeError, ValueError, NotImplementedError) as error:
                difference = "%s: %s" % (type(error).__name__, error)
            passed += difference is None
            rows.append("| %s | %s | %s | %s |" % (operator, case.name, onnx_cases.other_dtype(case) or "", "pass" if difference is None else difference))
        totals.append("| %s | %d | %d |" % (operator, len(cases), passed))
        print("%s: %d of %d" % (operator, passed, len(cases)), flush=True)
        failures += len(cases) - passed
    text = TEXT.format(onnx=onnx.__version__, rtol=cases[0].rtol, atol=cases[0].atol, totals="\n".join(totals), rows="\n".join(rows))
    options.output.write_text(text, encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

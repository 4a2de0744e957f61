"""The ONNX node cases of Attention and FlexAttention: which exist, and whether the Python package answers them as the suite requires."""
import warnings

import numpy
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.runner import Runner

import onnx_attention

OPERATORS = ("Attention", "FlexAttention")


def collect():
    """{operator: its cases}, one node each; the expanded forms are other operators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    found = {operator: [] for operator in OPERATORS}
    for case in cases:
        nodes = case.model.graph.node
        if len(nodes) == 1 and nodes[0].op_type in found:
            found[nodes[0].op_type].append(case)
    return found


def node_inputs(case):
    """The arrays by the names of the node's inputs; None where it has none."""
    node, given = case.model.graph.node[0], iter(case.data_sets[0][0])
    return [numpy.asarray(next(given)) if name else None for name in node.input]


def run(case):
    """None when every output is as close as the suite asks for, else what differs."""
    expected = [numpy.asarray(x) for x in case.data_sets[0][1]]
    try:
        found = onnx_attention.run_case(case.model.graph.node[0], node_inputs(case))
        Runner.assert_similar_outputs(expected, found, rtol=case.rtol, atol=case.atol)
    except AssertionError as error:
        return " ".join(str(error).split())
    return None


def other_dtype(case):
    """The dtype of the inputs, or None where it is float32."""
    name = numpy.asarray(case.data_sets[0][0][0]).dtype.name
    return None if name == "float32" else name

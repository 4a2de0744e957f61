"""The graphs of FlexAttention as polyhead's expressions: every node becomes text, shapes and ranges become positions."""
import numpy
import onnx
from onnx import numpy_helper

INFIX = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Less": "<", "LessOrEqual": "<=", "Greater": ">", "GreaterOrEqual": ">=",
         "Equal": "==", "And": "and", "Or": "or"}
CALLS = {"Tanh": "tanh", "Exp": "exp", "Log": "log", "Abs": "abs", "Sqrt": "sqrt", "Floor": "floor", "Min": "min", "Max": "max"}
POSITIONS = ("b", "h", "q", "kv")
EXTENTS = (None, None, "seq_len_q", "seq_len_kv")


class Shape(tuple):
    """What Shape gives of the scores: the names of their extents."""


class Range:
    """0, 1, 2 ... of an extent, before Reshape says along which dimension."""


def score_expression(graph):
    """score_mod as text. Where(condition, score, -inf) at its end becomes a mask, which excludes for certain."""
    values, final = _evaluate(graph)
    if final.op_type == "Where" and _is_minus_infinity(values[final.input[2]]):
        return "mask = %s\nscore = %s" % (_text(values[final.input[0]]), _text(values[final.input[1]]))
    return "score = " + _text(values[final.output[0]])


def factor(graph):
    """prob_mod as a number: weights times a constant are what a head gate does."""
    values, final = _evaluate(graph)
    constants = [values[name] for name in final.input if isinstance(values[name], numpy.ndarray)]
    if final.op_type != "Mul" or len(graph.node) != 1 or len(constants) != 1 or constants[0].size != 1:
        raise NotImplementedError("prob_mod: found %s, expected a product with a constant" % [n.op_type for n in graph.node])
    return float(constants[0].reshape(-1)[0])


def _evaluate(graph):
    """Every value of the graph by name: text, a numpy constant, a Shape or a Range; and the node that makes the output."""
    values = {graph.input[0].name: "score"}
    values.update((tensor.name, numpy_helper.to_array(tensor)) for tensor in graph.initializer)
    for node in graph.node:
        values[node.output[0]] = _node(node, [values[name] for name in node.input])
    return values, next(node for node in graph.node if graph.output[0].name in node.output)


def _node(node, inputs):
    kind = node.op_type
    if kind in INFIX:
        return "(%s %s %s)" % (_text(inputs[0]), INFIX[kind], _text(inputs[1]))
    if kind in CALLS:
        return "%s(%s)" % (CALLS[kind], ", ".join(map(_text, inputs)))
    if kind in ("Neg", "Not"):
        return "(%s %s)" % ("-" if kind == "Neg" else "not", _text(inputs[0]))
    if kind == "Where":
        return None if _is_minus_infinity(inputs[2]) else "select(%s)" % ", ".join(map(_text, inputs))
    if kind == "Constant":
        return numpy_helper.to_array(node.attribute[0].t)
    if kind == "Shape":
        return Shape(EXTENTS)
    if kind == "Gather" and isinstance(inputs[0], Shape):
        return inputs[0][int(inputs[1])]
    if kind == "Range":
        return Range()
    if kind in ("Reshape", "Unsqueeze") and isinstance(inputs[0], Range):
        return POSITIONS[_dimension(kind, inputs[1])]
    if kind in ("Identity", "Cast") and isinstance(inputs[0], str):
        return "(%s * 1.0)" % inputs[0] if kind == "Cast" and node.attribute[0].i == onnx.TensorProto.FLOAT else inputs[0]
    raise NotImplementedError("node %s: not known in an expression" % kind)


def _dimension(kind, sizes):
    """Which of the four dimensions a range lies along: the one of the -1, or the one that is not new."""
    rank = len(sizes) if kind == "Reshape" else len(sizes) + 1
    along = list(sizes).index(-1) if kind == "Reshape" else next(i for i in range(rank) if i not in [s % rank for s in sizes])
    return 4 - rank + along


def _is_minus_infinity(value):
    return isinstance(value, numpy.ndarray) and value.size == 1 and numpy.isneginf(value.reshape(-1)[0])


def _text(value):
    if isinstance(value, str):
        return value
    if isinstance(value, numpy.ndarray) and value.size == 1:
        number = value.reshape(-1)[0]
        if numpy.issubdtype(value.dtype, numpy.integer):
            return "(%d)" % number
        if numpy.isfinite(number):
            return "(%.9g)" % number if "." in "%.9g" % number or "e" in "%.9g" % number else "(%.9g.0)" % number
    raise NotImplementedError("value %r: not known in an expression" % (value,))

"""ONNX Attention and FlexAttention nodes through the Python package: run_case(node, inputs) -> outputs.

float16 and bfloat16 are stored as they are; softmax_precision changes nothing, because sums are float32 in every kernel.
"""
import numpy
import onnx

import onnx_expression
import polyhead

OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")
STAGES = {0: "scaled", 1: "capped", 2: "logits"}


def run_case(node, inputs):
    """The outputs of one node, in the order of those that it names. inputs: numpy arrays, None where the node leaves one out."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "FlexAttention":
        return [flex_attention(*inputs, **attributes)]
    if node.op_type != "Attention":
        raise ValueError("op_type: found %s, expected Attention or FlexAttention" % node.op_type)
    wanted = [OUTPUTS[i] for i, name in enumerate(node.output) if name]
    names = ("query", "key", "value", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
    given = {name: x for name, x, text in zip(names, inputs, node.input) if text}
    results = attention(qk_output="qk_matmul_output" in wanted, **given, **attributes)
    return [results[name] for name in wanted]


def attention(query, key, value, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *, qk_output=False, scale=None,
              is_causal=0, q_num_heads=None, kv_num_heads=None, softcap=0.0, qk_matmul_output_mode=0, left_window_size=-1,
              right_window_size=-1, softmax_precision=None):
    """The operator of the main domain, opset 23 to 25."""
    packed = query.ndim == 3
    if packed:
        query = heads_first(query, q_num_heads)
        key, value = (heads_first(x, kv_num_heads) for x in (key, value))
    out = numpy.empty((*query.shape[:3], value.shape[3]), query.dtype)
    if packed:
        out = heads_first(numpy.empty((out.shape[0], out.shape[2], out.shape[1] * out.shape[3]), query.dtype), q_num_heads)
    options = {}
    if qk_output:
        options.update(return_weights=True) if qk_matmul_output_mode == 3 else options.update(return_scores=STAGES[qk_matmul_output_mode])
    results = polyhead.sdpa(
        query, key, value, padded(attn_mask, key.shape[2] + (0 if past_key is None else past_key.shape[2])),
        is_causal=bool(is_causal), causal_alignment="top_left" if nonpad_kv_seqlen is None else "bottom_right", scale=scale,
        kv_lengths=nonpad_kv_seqlen, window=(left_window_size, right_window_size), softcap=softcap, past_key=past_key,
        past_value=past_value, out=out, return_present=True, **options)
    *scores, present_key, present_value = results[1:]
    if packed:
        out = out.transpose(0, 2, 1, 3).reshape(out.shape[0], out.shape[2], -1)
    return {"Y": out, "present_key": present_key, "present_value": present_value,
            "qk_matmul_output": scores[0].astype(query.dtype) if scores else None}


def heads_first(tensor, heads):
    """[B,T,H*d] seen as [B,H,T,d]."""
    return tensor.reshape(tensor.shape[0], tensor.shape[1], heads, -1).transpose(0, 2, 1, 3)


def padded(mask, seq_len_kv):
    """A mask of fewer keys than there are excludes the others."""
    if mask is None or mask.ndim == 0 or mask.shape[-1] in (1, seq_len_kv):
        return mask
    rest = numpy.full((*mask.shape[:-1], seq_len_kv - mask.shape[-1]), False if mask.dtype == bool else -numpy.inf, mask.dtype)
    return numpy.concatenate((mask, rest), -1)


def flex_attention(query, key, value, scale=None, score_mod=None, prob_mod=None, softmax_precision=None):
    """The operator of the domain ai.onnx.preview; its graphs become an expression and a factor of each head."""
    options = {}
    if score_mod is not None:
        options["expression"] = onnx_expression.score_expression(score_mod)
    if prob_mod is not None:
        options["head_gate"] = numpy.full(query.shape[1], onnx_expression.factor(prob_mod), numpy.float32)
    return polyhead.sdpa(query, key, value, scale=scale, **options)

"""What the fields of a layer mean, as a formula in NumPy: self-attention over a whole text, of any dtype."""
import numpy as np

from polyhead.reference import attention, join_heads, linear, rotated, split_heads, visible


def normed(x, kind, weight, epsilon):
    """x over its last dimension; weight None: 1."""
    x = x / np.sqrt(np.mean(np.square(x), -1, keepdims=True) + x.dtype.type(epsilon))
    if kind == "none" or weight is None:
        return x
    return x * (weight.astype(x.dtype) + (kind == "rms_plus_one"))


def head_norm(x, heads, fields, name, arguments):
    """[B,H,T,d] of projected [B,T,H·d], with the norm of query or key."""
    kind, weight, epsilon = fields.get(name + "_norm", "none"), arguments.get(name + "_norm_weight"), arguments.get("norm_epsilon")
    if kind != "none" and fields.get("norm_of_projection"):
        return split_heads(normed(x, kind, weight, epsilon), heads)
    x = split_heads(x, heads)
    return x if kind == "none" else normed(x, kind, weight, epsilon)


def tables_of(fields, cos, sin, positions):
    """cos and sin of each token [T, pairs], of tables [P, pairs] and positions [T], or [S,T] of S directions."""
    if "rope_sections" not in fields:
        return cos[positions], sin[positions]
    assert fields["rope_sections"] == "interleaved"
    sections = [fields["section_%d" % place] for place in (1, 2, 3)]
    pairs = np.arange(cos.shape[1])
    direction = np.where((pairs % 3 > 0) & (pairs < 3 * np.array(sections)[pairs % 3]), pairs % 3, 0)
    return tuple(table[positions[direction], pairs[:, None]].T for table in (cos, sin))


def plain_layer(fields, weights, arguments, x, tables=None, shared=None, kv_lengths=None, dtype=np.float64):
    """out [B,T,D] of x [B,T,D], and keys and values [B,H_kv,T,d]. tables: cos and sin of each token. shared: keys and values of another layer."""
    x = x.astype(dtype)
    heads, kv_heads, tokens = fields["num_heads"], fields["num_kv_heads"], x.shape[1]

    def projected(name):
        return linear(x, weights[name], weights.get(name + "_bias"), dtype)

    def turned(heads_of):
        if tables is None:
            return heads_of
        return rotated(heads_of, *tables, np.broadcast_to(np.arange(tokens), x.shape[:2]), interleaved=False, dtype=dtype)

    made = projected("query")
    if "gate" in fields:  # of each head: the query, then the gate
        assert fields["gate"] == "entries"
        made, gate = (part.reshape(*x.shape[:2], -1) for part in np.split(made.reshape(*x.shape[:2], heads, -1), 2, -1))
    query = turned(head_norm(made, heads, fields, "query", arguments))
    if shared is None:
        raw = projected("key")
        value = split_heads(raw if fields.get("value_from_key") else projected("value"), kv_heads)
        key = turned(head_norm(raw, kv_heads, fields, "key", arguments))
        if fields.get("value_norm"):
            value = normed(value, "none", None, arguments["norm_epsilon"])
    else:
        key, value = (part.astype(dtype) for part in shared)
    seen = visible(tokens, tokens, kv_lengths, causal="causal" in fields, window=arguments.get("window", (-1, -1)), batch=len(x))
    found = attention(query, key, value, seen, scale=arguments["softmax_scale"], softcap=arguments.get("softcap", 0.0), sinks=arguments.get("sinks"),
                      dtype=dtype).out
    context = join_heads(found)
    if "gate" in fields:
        context = context / (1 + np.exp(-gate))
    return linear(context, weights["out_proj"], weights.get("out_bias"), dtype), (key, value)

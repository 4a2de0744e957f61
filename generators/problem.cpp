// Problem: completion and refusal.
#include "problem.h"

#include <iterator>

namespace polyhead::gen {

namespace {

std::string number(const char *name, int value) {
    return std::string(name) + " " + std::to_string(value);
}

std::string outside(const char *name, int value, int low, int high) {
    if (value >= low && value <= high) {
        return "";
    }
    return number(name, value) + " is not allowed: expected " + std::to_string(low) + " to " + std::to_string(high);
}

template <class... Sentences> std::string first(const Sentences &...sentences) {
    std::string found;
    ((found.empty() ? void(found = sentences) : void()), ...);
    return found;
}

constexpr int most_features = 1 << 20, most_length = 1 << 24;

std::string not_taken(const char *name, int value, const char *op) {
    return value == 0 ? "" : std::string(name) + " is not a parameter of op " + op;
}

std::string refuse_heads(const Problem &p) {
    std::string found = first(outside("num_heads", p.num_heads, 1, 128), outside("num_kv_heads", p.num_kv_heads, 1, 128));
    if (found.empty() && p.num_heads % p.num_kv_heads != 0) {
        found = number("num_heads", p.num_heads) + " is not a multiple of " + number("num_kv_heads", p.num_kv_heads);
    }
    return first(found, outside("head_dim", p.head_dim, 1, 576), outside("head_dim_v", p.head_dim_v, 1, 576));
}

std::string refuse_op(const Problem &p) {
    switch (p.op) {
    case POLYHEAD_SDPA:
        return first(refuse_heads(p), not_taken("embed_dim", p.embed_dim, "sdpa"), not_taken("kdim", p.kdim, "sdpa"),
                     not_taken("vdim", p.vdim, "sdpa"), not_taken("cross", p.cross, "sdpa"), not_taken("bias", p.bias, "sdpa"),
                     not_taken("out_features", p.out_features, "sdpa"));
    case POLYHEAD_MHA:
        return first(outside("embed_dim", p.embed_dim, 1, most_features), refuse_heads(p), outside("kdim", p.kdim, 1, most_features),
                     outside("vdim", p.vdim, 1, most_features), not_taken("out_features", p.out_features, "mha"));
    case POLYHEAD_LINEAR:
        return first(outside("embed_dim", p.embed_dim, 1, most_features), outside("out_features", p.out_features, 1, most_features),
                     not_taken("num_heads", p.num_heads, "linear"), not_taken("num_kv_heads", p.num_kv_heads, "linear"),
                     not_taken("head_dim", p.head_dim, "linear"), not_taken("head_dim_v", p.head_dim_v, "linear"),
                     not_taken("causal", p.causal, "linear"), not_taken("kv_lengths", p.kv_lengths, "linear"),
                     not_taken("lse", p.lse, "linear"), not_taken("cross", p.cross, "linear"),
                     not_taken("seq_len_kv", p.seq_len_kv, "linear"));
    default:
        return number("op", p.op) + " is not allowed: expected sdpa, mha or linear";
    }
}

} // namespace

std::string dtype_name(int dtype) {
    static const char *const names[] = {"f32", "f16", "bf16", "i8", "i32", "bool"};
    return dtype >= 0 && dtype < int(std::size(names)) ? names[dtype] : std::to_string(dtype);
}

std::string refusal(const Problem &p) {
    if (p.dtype < POLYHEAD_F32 || p.dtype > POLYHEAD_BF16) {
        return "dtype " + dtype_name(p.dtype) + " is not supported: expected f32, f16 or bf16";
    }
    if (p.causal < POLYHEAD_NOT_CAUSAL || p.causal > POLYHEAD_TOP_LEFT) {
        return number("causal", p.causal) + " is not allowed: expected bottom_right or top_left";
    }
    std::string found =
        first(refuse_op(p), outside("seq_len_q", p.seq_len_q, 0, most_length), outside("seq_len_kv", p.seq_len_kv, 0, most_length));
    if (found.empty() && p.op == POLYHEAD_MHA && !p.cross) {
        if (p.kdim != p.embed_dim || p.vdim != p.embed_dim) {
            const bool key = p.kdim != p.embed_dim;
            found = number(key ? "kdim" : "vdim", key ? p.kdim : p.vdim) + " differs from " + number("embed_dim", p.embed_dim) +
                    ": only a cross layer has key and value inputs of their own";
        } else if (p.seq_len_q != p.seq_len_kv) {
            found = number("seq_len_kv", p.seq_len_kv) + " differs from " + number("seq_len_q", p.seq_len_q) +
                    ": a self-attention layer has one length";
        }
    }
    return found;
}

std::string complete(Problem *p) {
    if (p->op == POLYHEAD_SDPA || p->op == POLYHEAD_MHA) {
        if (p->num_kv_heads == 0) {
            p->num_kv_heads = p->num_heads;
        }
        if (p->op == POLYHEAD_MHA && p->head_dim == 0 && p->num_heads > 0 && p->embed_dim > 0) {
            if (p->embed_dim % p->num_heads != 0) {
                return number("embed_dim", p->embed_dim) + " is not divisible by " + number("num_heads", p->num_heads);
            }
            p->head_dim = p->embed_dim / p->num_heads;
        }
        if (p->head_dim_v == 0) {
            p->head_dim_v = p->head_dim;
        }
    }
    if (p->op == POLYHEAD_MHA) {
        p->kdim = p->kdim == 0 ? p->embed_dim : p->kdim;
        p->vdim = p->vdim == 0 ? p->embed_dim : p->vdim;
        if (!p->cross && (p->seq_len_q == 0) != (p->seq_len_kv == 0)) {
            p->seq_len_q = p->seq_len_kv = p->seq_len_q + p->seq_len_kv;
        }
    }
    return refusal(*p);
}

} // namespace polyhead::gen

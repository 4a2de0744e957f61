/* What a kernel computes: plain structs, included by c_api.h. */
#ifndef POLYHEAD_C_PROBLEM_H
#define POLYHEAD_C_PROBLEM_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum polyhead_dtype {
    POLYHEAD_F32 = 0,
    POLYHEAD_F16 = 1,
    POLYHEAD_BF16 = 2,
    POLYHEAD_I8 = 3,
    POLYHEAD_I32 = 4,
    POLYHEAD_BOOL = 5
} polyhead_dtype;

typedef enum polyhead_op {
    POLYHEAD_SDPA = 0,
    POLYHEAD_MHA = 1,
    POLYHEAD_LINEAR = 2,
    POLYHEAD_SDPA_BACKWARD = 3,
    POLYHEAD_LINEAR_BACKWARD = 4,
    POLYHEAD_MHA_BACKWARD = 5
} polyhead_op;

/* The corner of the scores in which the causal diagonal ends when seq_len_q and the valid key length differ. */
typedef enum polyhead_causal {
    POLYHEAD_NOT_CAUSAL = 0,
    POLYHEAD_BOTTOM_RIGHT = 1, /* query q sees keys up to q + kv_length[b] - seq_len_q */
    POLYHEAD_TOP_LEFT = 2      /* query q sees keys up to q */
} polyhead_causal;

/* What a kernel computes. Zero in a length means "free at run time". */
typedef struct polyhead_problem {
    uint32_t size;        /* sizeof(polyhead_problem) of the program's header */
    int32_t op;           /* polyhead_op */
    int32_t dtype;        /* storage type, polyhead_dtype; accumulation is f32 */
    int32_t num_heads;    /* H; 0 = free at run time, with group_size or free_group_size */
    int32_t num_kv_heads; /* H_kv, divides H; 0 with a free H: H / group_size, or the heads of key with free_group_size */
    int32_t head_dim;     /* of query and key, 1..576 */
    int32_t head_dim_v;   /* of value and out, 1..576 */
    int32_t embed_dim;    /* mha: width of query input and out; linear: width of input */
    int32_t kdim;         /* mha: width of the key input */
    int32_t vdim;         /* mha: width of the value input */
    int32_t out_features; /* linear: width of out */
    int32_t cross;        /* mha: key and value are inputs of their own */
    int32_t bias;         /* mha, linear: biases exist */
    int32_t causal;       /* polyhead_causal: the default alignment; a call may choose the other one */
    int32_t kv_lengths;   /* an int32 tensor [B] of valid key lengths is an input */
    int32_t lse;          /* the natural log-sum-exp of the logits [B,H,T_q] is an output */
    int32_t seq_len_q;    /* fixed query length (linear: rows), or 0 */
    int32_t seq_len_kv;   /* fixed key length, or 0 */

    /* Masks and modifiers of sdpa and mha. Order: scale, softcap, expression, additive terms, exclusion, softmax. */
    int32_t window;               /* 1: sliding window, sizes given at run time */
    int32_t position_offsets;     /* an int32 tensor [B] is added to the positions of queries */
    int32_t mask;                 /* polyhead_mask */
    int32_t mask_broadcast;       /* POLYHEAD_BROADCAST_Q, _KV: dimensions in which the mask has one element */
    int32_t score_bias;           /* 1: [B,H,T_q,T_kv] is added to the logits, beside a mask */
    int32_t score_bias_broadcast; /* as mask_broadcast */
    int32_t additive_in_storage;  /* 1: an additive mask and score_bias have the storage type instead of f32 */
    int32_t softcap;              /* 1: logits become cap * tanh(logit / cap), cap given at run time */
    int32_t alibi;                /* 1: -slope * |position of query - key| is added, slopes f32 [H] or [B,H] */
    int32_t sinks;                /* 1: a logit per head, f32 [H], takes part in the softmax without a value */
    int32_t rope;                 /* polyhead_rope: query and key are rotated by position */
    int32_t rotary_dim;           /* rope: leading or trailing entries of head_dim that are rotated, even; 0 = head_dim */
    int32_t head_gate;            /* 1: the attention result of each head is multiplied by f32 [H] */
    int32_t scores;               /* polyhead_scores: these scores are an output, f32 [B,H,T_q,T_kv] */
    int32_t weights_mean;         /* 1: the mean over heads of the attention weights is an output, f32 [B,T_q,T_kv] */
    int32_t value_in_key;         /* sdpa, 1: value is the leading head_dim_v entries of key; calls give no value */
    int32_t group_size;           /* sdpa with num_heads 0: query heads of a key/value head; otherwise 0 */
    int32_t f32_weights;          /* mha, linear, 1: weights are packed as f32 instead of the storage type */
    int32_t page_size;            /* sdpa, mha with cache: keys per page, a power of two up to 1024; 0 = no pages */
    int32_t int8_cache;           /* sdpa, 1: key and value are int8, each row with f32 scales: key_scales, value_scales */
    int32_t scale_channels;       /* int8_cache: so many neighbouring entries of a row share a scale, 32 or 64; 0 = the whole row */
    int32_t cache;                /* mha, 1: new keys and values go into a cache of the caller, which attention reads */
    const char *expression;       /* user expression (docs/guides/expressions.md), or null */
    int32_t free_group_size;      /* sdpa with num_heads 0, 1: query heads of a key/value head are free, too; group_size is 0 */
    int32_t gate;                 /* polyhead_gate: the attention result is multiplied by the sigmoid of a tensor, in mha of a projection */
    int32_t query_norm;           /* polyhead_norm: of each head of query, before rotation */
    int32_t key_norm;             /* polyhead_norm: of each head of key, before rotation; a cache has keys after it */
    int32_t value_norm;           /* 1: each head of value is divided by the root of its mean square, without weights */
    int32_t norm_of_projection;   /* mha, 1: query_norm and key_norm (rms) count all heads of a token as one */
    int32_t value_from_key;       /* mha, 1: value is the projected key before norm and rotation; there are no weights of value */
    int32_t shared_cache;         /* mha with cache, 1: another layer wrote keys and values, those of the call too; only W_Q and W_O */
    int32_t rope_sections;        /* polyhead_rope_sections: pairs of rope take their positions from two or three directions */
    int32_t section_1;            /* rope_sections: so many of the rotary_dim / 2 pairs take them from the first direction, */
    int32_t section_2;            /* from the second, */
    int32_t section_3;            /* and from the third; 0: two directions */
    int32_t grad_score_bias;      /* sdpa_backward, 1: the gradient of score_bias is an output, too */
    int32_t grad_alibi;           /* the same of the slopes, */
    int32_t grad_sinks;           /* of the sinks, */
    int32_t grad_gate;            /* and of the gate */
    int32_t dropout;              /* 1: weights are dropped at random, by a probability and a seed of the call */
    int32_t keep_heads;           /* mha, 1: lse, the projected heads and the result of attention are outputs, which mha_backward reads */
    int32_t grad_query_norm;      /* sdpa_backward, 1: the gradients of weight and bias of query_norm are outputs, too */
    int32_t grad_key_norm;        /* the same of key_norm */
    int32_t precision;            /* polyhead_precision: what products of f32 may become on a GPU */
} polyhead_problem;

typedef enum polyhead_mask {
    POLYHEAD_NO_MASK = 0,
    POLYHEAD_BOOLEAN_MASK = 1, /* bool: true = takes part */
    POLYHEAD_ADDITIVE_MASK = 2 /* floats added to the logits; with -inf the key is excluded, with any finite number it takes part */
} polyhead_mask;

/* Bits of mask_broadcast and score_bias_broadcast. */
#define POLYHEAD_BROADCAST_Q 1
#define POLYHEAD_BROADCAST_KV 2

typedef enum polyhead_rope {
    POLYHEAD_NO_ROPE = 0,
    POLYHEAD_ROPE_INTERLEAVED = 1,          /* entries 2i and 2i + 1 of the leading rotary_dim ones are a pair */
    POLYHEAD_ROPE_HALF_SPLIT = 2,           /* entries i and i + rotary_dim / 2 of the leading ones are a pair */
    POLYHEAD_ROPE_INTERLEAVED_TRAILING = 3, /* the same of the trailing rotary_dim entries */
    POLYHEAD_ROPE_HALF_SPLIT_TRAILING = 4
} polyhead_rope;

/* How f32 is multiplied. */
typedef enum polyhead_precision {
    POLYHEAD_IEEE = 0,  /* by multiply-adds of f32 */
    POLYHEAD_TF32X3 = 1 /* on GPUs that have tensor cores also by three products of tf32, whose error keeps the rule of f32 */
} polyhead_precision;

typedef enum polyhead_gate {
    POLYHEAD_NO_GATE = 0,
    POLYHEAD_GATE_OF_HEADS = 1,  /* one number of a head: [B,H,T_q,1] */
    POLYHEAD_GATE_OF_ENTRIES = 2 /* one of each entry: [B,H,T_q,d_v] */
} polyhead_gate;

typedef enum polyhead_norm {
    POLYHEAD_NO_NORM = 0,
    POLYHEAD_RMS_NORM = 1,          /* x / sqrt(mean(x^2) + epsilon) * weight */
    POLYHEAD_RMS_NORM_PLUS_ONE = 2, /* the factor is 1 + weight, as Gemma and Qwen3-Next store it */
    POLYHEAD_LAYER_NORM = 3         /* (x - mean) / sqrt(variance + epsilon) * weight + bias */
} polyhead_norm;

/* Which pairs of a rotation belong to which of the directions 0, 1 and 2 (of a video: time, row, column). Positions are [B,S,T], S = 2 or 3
 * directions; column i of the tables belongs to pair i. */
typedef enum polyhead_rope_sections {
    POLYHEAD_NO_SECTIONS = 0,          /* a token has one position */
    POLYHEAD_SECTIONS_CONTIGUOUS = 1,  /* the first section_1 pairs to direction 0, the next section_2 to 1, the others to 2 */
    POLYHEAD_SECTIONS_INTERLEAVED = 2, /* pair 3j + 1 to direction 1 if j < section_2, 3j + 2 to 2 if j < section_3, the others to 0 */
    POLYHEAD_SECTIONS_PARTS = 3        /* as contiguous, and the 2 * section_n entries of a direction lie together: pairs are made inside */
} polyhead_rope_sections;

/* Which stage of query key^T is an output. Excluded keys are -inf in logits and 0 in weights. With pages or a cache, keys behind the
 * valid ones are 0 in the first two stages. */
typedef enum polyhead_scores {
    POLYHEAD_NO_SCORES = 0,
    POLYHEAD_SCALED_SCORES = 1, /* softmax_scale * query key^T */
    POLYHEAD_CAPPED_SCORES = 2, /* after softcap */
    POLYHEAD_LOGITS = 3,        /* after expression, bias and masks */
    POLYHEAD_WEIGHTS = 4        /* after softmax */
} polyhead_scores;

/* A tensor that the expression of a problem declares. The innermost dimension has all its elements and stride 1. Another dimension may
 * have one element, which is broadcast, if the declaration names a dimension of the problem there. */
#define POLYHEAD_EXTENT_FREE 0
#define POLYHEAD_EXTENT_B (-1)
#define POLYHEAD_EXTENT_H (-2)
#define POLYHEAD_EXTENT_Q (-3)
#define POLYHEAD_EXTENT_KV (-4)
typedef struct polyhead_declaration {
    const char *name;
    int32_t dtype;        /* POLYHEAD_F32, POLYHEAD_I32 or POLYHEAD_BOOL */
    int32_t rank;         /* 0: one number, given as a tensor [1] */
    int32_t extents[4];   /* outermost first: a number of elements, or one of POLYHEAD_EXTENT_ */
    const char *gradient; /* sdpa_backward, of a tensor whose gradient the text asks for (`grad NAME`): its name; null: none is written */
} polyhead_declaration;

/* A problem of which nothing is set but its operation. */
static inline polyhead_problem polyhead_problem_of(int32_t op) {
    polyhead_problem problem;
    memset(&problem, 0, sizeof problem);
    problem.size = (uint32_t)sizeof problem;
    problem.op = op;
    return problem;
}

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif

/* Functions around kernels in C: keys and values are appended to a cache, rows are rotated and normalized, partial results are merged.
 *
 * All of them run on the CPU, on tensors in host memory. Unless the status is ok, nothing was written. An output has no element in common
 * with another tensor, unless its function says so; tensors may be interleaved where their strides show that they have none. Integers that
 * another thread changes during a call make its results undefined, but no access leaves the tensors. Strides are in elements, the innermost
 * is 1. Elements are f32, f16 or bf16, in a cache also int8; sums are f32, those of norms f64, and what is stored in 16 bits is
 * rounded once, to nearest even. */
#ifndef POLYHEAD_C_CACHE_H
#define POLYHEAD_C_CACHE_H

#include <polyhead/c_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A cache: memory of the caller that sdpa reads, with kv_lengths and, if it has pages, page_table. */
typedef struct polyhead_cache {
    uint32_t size;              /* sizeof(polyhead_cache) of the program's header */
    polyhead_tensor key;        /* [B,H_kv,capacity,d]; with a page table [pages,H_kv,page_size,d] */
    polyhead_tensor value;      /* the same with d_v; absent where value is the leading part of key */
    polyhead_tensor page_table; /* int32 [B,max_pages], as in polyhead_args: the capacity is max_pages * page_size; absent: no pages */
    /* Exactly where key and value are int8: f32 [B,H_kv,capacity,n], with pages [pages,H_kv,page_size,n]. n is 1, or d / 32 or d / 64, so
     * that 32 or 64 neighbouring entries share a scale. */
    polyhead_tensor key_scales, value_scales;
} polyhead_cache;

/* Rotation by position (RoPE), as kernels with `rope` do it. */
typedef struct polyhead_rotation {
    int32_t rope;              /* polyhead_rope; 0: nothing is rotated, and the tensors are absent */
    polyhead_tensor cos, sin;  /* f32 [P, rotary_dim / 2]: row n belongs to position n; rotary_dim is at most the head dimension */
    polyhead_tensor positions; /* int32 [B]: of the first token of each batch row; or [B,T]: of each token. All are 0..P-1 */
} polyhead_rotation;

/* Which pairs of a rotation take their position from which direction, as polyhead_problem says it. */
typedef struct polyhead_sections {
    int32_t rope_sections;                   /* polyhead_rope_sections; 0: tokens have one position, and the numbers are 0 */
    int32_t section_1, section_2, section_3; /* pairs of each direction, rotary_dim / 2 together; section_3 0: two directions */
} polyhead_sections;

/* New keys and values of a cache. */
typedef struct polyhead_new_keys {
    uint32_t size;              /* sizeof(polyhead_new_keys) */
    polyhead_tensor key;        /* [B,H_kv,T,d], of the cache's type or f32; for a cache of int8 f32, f16 or bf16 */
    polyhead_tensor value;      /* [B,H_kv,T,d_v]; absent where the cache has no value */
    polyhead_tensor lengths;    /* int32 [B]: keys of each batch row that are valid before the call, 0..capacity */
    polyhead_tensor counts;     /* int32 [B], 0..T: so many leading tokens of each batch row are appended; absent: all T */
    polyhead_rotation rotation; /* of the keys; positions absent: token t of row b is at lengths[b] + t */
    /* 1: no query after the call sees further back than window_left keys before its own. Then a page is in use from the key at
     * lengths[b] - window_left on, and columns of the page table before it may name pages that are written: a ring. */
    int32_t has_window, window_left;
    polyhead_sections sections; /* of rotation: then rotation.positions is [B] or [B,S,T], S = 2 or 3 directions */
    /* int32 [B+1], from 0 to the number of all tokens, never falling: packed tokens. key and value are then [1,H_kv,total,d], tokens
     * cu_seqlens[b] .. cu_seqlens[b + 1] - 1 are those of batch row b, positions are [B] or [1,total], with sections [B] or [1,S,total],
     * and there are no counts. */
    polyhead_tensor cu_seqlens;
    int32_t key_norm;                               /* polyhead_norm: of each row of the keys, before the rotation */
    polyhead_tensor key_norm_weight, key_norm_bias; /* [d], f32, f16 or bf16; absent: a factor of 1, a bias of 0 */
    float norm_epsilon;                             /* finite and above 0 where something is normalized, otherwise 0 */
    int32_t value_norm;                             /* 1: each row of the values becomes x / sqrt(mean(x^2) + norm_epsilon) */
} polyhead_new_keys;

static inline polyhead_cache polyhead_cache_of(polyhead_tensor key, polyhead_tensor value, polyhead_tensor page_table) {
    polyhead_cache cache;
    memset(&cache, 0, sizeof cache);
    cache.size = (uint32_t)sizeof cache;
    cache.key = key;
    cache.value = value;
    cache.page_table = page_table;
    return cache;
}

/* New keys of which nothing is given. */
static inline polyhead_new_keys polyhead_new_keys_of(void) {
    polyhead_new_keys keys;
    memset(&keys, 0, sizeof keys);
    keys.size = (uint32_t)sizeof keys;
    return keys;
}

/* Writes token t of batch row b to position lengths[b] + t of the cache. The caller counts: afterwards row b has lengths[b] + counts[b]
 * valid keys (of packed tokens: those of its sequence more). To take tokens back, use smaller lengths. Refused, among others: more keys
 * than the capacity; an entry of the page table that names no page, up to the last page that a row uses afterwards; a page that is written
 * and that another row uses as well, or the same row twice. With has_window and pages, the table of a row of n pages may repeat them,
 * column j naming page j % n of the row: n * page_size must be at least window_left + T + page_size - 1. In a cache of int8, entries become
 * x / scale, rounded to nearest even, where scale is the largest |x| of the entries that share it, divided by 127; new keys and values that
 * are not finite are refused. Calls that write to different pages or rows may run at the same time. */
polyhead_status polyhead_append(const polyhead_cache *cache, const polyhead_new_keys *keys);
/* Scratch memory that polyhead_append_in() takes: a bit for each page. When the arguments are refused: 0, and *status. */
int64_t polyhead_append_scratch_bytes(const polyhead_cache *cache, const polyhead_new_keys *keys, polyhead_status *status);

/* Copies page `from` of a cache to page `to`, key and value of all heads: before a row writes to a page that it shares. The page table is
 * not read. Of a cache without pages, it copies a batch row. */
polyhead_status polyhead_copy_page(const polyhead_cache *cache, int32_t from, int32_t to);

/* out [B,H,T,d] = input [B,H,T,d], rotated; both have the same type. Positions absent: token t is at position t. out may be input itself,
 * with the same strides, and may otherwise not share memory with it. */
polyhead_status polyhead_rotate(const polyhead_tensor *input, const polyhead_rotation *rotation, const polyhead_tensor *out);
/* The same with sections (null: none): positions are [B], which are those of all directions, or [B,S,T]. The workspace may be null. */
polyhead_status polyhead_rotate_sections_in(const polyhead_workspace *workspace, const polyhead_tensor *input,
                                            const polyhead_rotation *rotation, const polyhead_sections *sections,
                                            const polyhead_tensor *out);

/* A norm of rows of heads. */
typedef struct polyhead_head_norm {
    uint32_t size;                /* sizeof(polyhead_head_norm) */
    int32_t norm;                 /* polyhead_norm; 0: nothing is changed, and the other fields are 0 */
    float epsilon;                /* finite and above 0 */
    uint32_t reserved;            /* 0 */
    polyhead_tensor weight, bias; /* as key_norm_weight and key_norm_bias of polyhead_new_keys */
} polyhead_head_norm;

static inline polyhead_head_norm polyhead_head_norm_of(int32_t norm, float epsilon) {
    polyhead_head_norm made;
    memset(&made, 0, sizeof made);
    made.size = (uint32_t)sizeof made;
    made.norm = norm;
    made.epsilon = epsilon;
    return made;
}

/* out [B,H,T,d] = input [B,H,T,d], each row of d entries normalized as append normalizes new keys: for the queries of such keys, before
 * they are rotated. Both have the same type. out may be input itself, with the same strides, and may otherwise not share memory with it. */
polyhead_status polyhead_normalize(const polyhead_tensor *input, const polyhead_head_norm *norm, const polyhead_tensor *out);

/* What attention over a part of the keys gave: the outputs of a kernel with lse. */
typedef struct polyhead_state {
    polyhead_tensor out; /* [B,H,T_q,d_v] */
    polyhead_tensor lse; /* f32 [B,H,T_q]; -inf: the part has no key for this row, and its out is not read; +inf is refused */
} polyhead_state;

/* The result over all keys of the parts, which must have no key in common: out and lse as one call would give them, up to rounding. All
 * tensors out have one type. Parts are added in their order. A row without keys in any part gives 0 and -inf.
 * sinks: f32 [H], or null. A sink counts once: give it here, and run the parts without it. (A part that was run with sinks has them in its
 * lse, which is right too; but a row that sees no key of this part would lose its sink.)
 * lse may be null. out and lse may be those of a part, with the same strides, and may otherwise not share memory with them. */
polyhead_status polyhead_merge_states(const polyhead_state *parts, int32_t num_parts, const polyhead_tensor *sinks,
                                      const polyhead_tensor *out, const polyhead_tensor *lse);

/* The same functions with threads and memory of the caller; a null workspace is that of this library. Only append takes scratch memory. */
polyhead_status polyhead_append_in(const polyhead_workspace *workspace, const polyhead_cache *cache, const polyhead_new_keys *keys);
polyhead_status polyhead_copy_page_in(const polyhead_workspace *workspace, const polyhead_cache *cache, int32_t from, int32_t to);
polyhead_status polyhead_rotate_in(const polyhead_workspace *workspace, const polyhead_tensor *input, const polyhead_rotation *rotation,
                                   const polyhead_tensor *out);
polyhead_status polyhead_normalize_in(const polyhead_workspace *workspace, const polyhead_tensor *input, const polyhead_head_norm *norm,
                                      const polyhead_tensor *out);
polyhead_status polyhead_merge_states_in(const polyhead_workspace *workspace, const polyhead_state *parts, int32_t num_parts,
                                         const polyhead_tensor *sinks, const polyhead_tensor *out, const polyhead_tensor *lse);

/* Which pages of a cache are used, and by how many sequences. It gives out numbers of pages and has no memory for keys. Threads may use a
 * pool at the same time: it has a lock, and memory of its own. In a child process of fork a pool of the parent is refused. */
typedef struct polyhead_page_pool polyhead_page_pool;
polyhead_status polyhead_make_page_pool(int32_t pages, polyhead_page_pool **pool);
void polyhead_free_page_pool(polyhead_page_pool *pool); /* null: nothing */
/* Takes pages that nobody uses; each then has one user. Fewer than count are free: POLYHEAD_OUT_OF_MEMORY, and none is taken. */
polyhead_status polyhead_take_pages(polyhead_page_pool *pool, int32_t count, int32_t *pages);
/* One user more for each of these pages, or one less; a page without users is free again. All of them must be in use: otherwise nothing is
 * changed. A page that is listed twice counts twice. */
polyhead_status polyhead_share_pages(polyhead_page_pool *pool, int32_t count, const int32_t *pages);
polyhead_status polyhead_release_pages(polyhead_page_pool *pool, int32_t count, const int32_t *pages);
/* 0 for a null pointer, and in a child process. */
int32_t polyhead_free_pages(polyhead_page_pool *pool);
int32_t polyhead_page_users(polyhead_page_pool *pool, int32_t page); /* 0 also for a number that is no page */

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif

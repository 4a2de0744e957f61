/* The C ABI of polyhead: plain structs and functions. The C++ header polyhead.h is built on it.
 *
 * Every function returns or fills a polyhead_status; nothing prints, throws or aborts. All strides are in elements.
 * A generated NAME.h defines a constant `polyhead_kernel` for C (`NAME`) and a `polyhead::Kernel` for C++ (`NAME`). */
#ifndef POLYHEAD_C_API_H
#define POLYHEAD_C_API_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <polyhead/c_executor.h>
#include <polyhead/c_problem.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Version of the table structs and of the argument order of entries. Kernels that were generated for a version from the lowest to this
 * one are served.
 *
 * Structs that begin with their size may grow: fields are only added at the end. One of an earlier header lacks some, and they count as 0.
 * One of a later header has some that this library does not know: they must be 0. Other sizes are refused with a sentence. */
#define POLYHEAD_ABI_VERSION 10
#define POLYHEAD_ABI_LOWEST 10
#define POLYHEAD_MAX_RANK 6
/* Columns of one panel of packed weights. Packed weights store this number; a call refuses weights with another one. */
#define POLYHEAD_WEIGHT_PANEL 16

typedef enum polyhead_code {
    POLYHEAD_OK = 0,
    POLYHEAD_NULL_POINTER = 1, /* a required tensor or weight is missing */
    POLYHEAD_WRONG_SHAPE = 2,  /* rank or extent */
    POLYHEAD_WRONG_STRIDE = 3, /* innermost stride not 1, overlapping output, 2^31 elements or a reach of as many, unaligned address */
    POLYHEAD_WRONG_DTYPE = 4,
    POLYHEAD_ALIASED = 5,         /* an output shares memory with an input or another output */
    POLYHEAD_BAD_VALUE = 6,       /* a key length outside 0..seq_len_kv, a softmax_scale that is not finite */
    POLYHEAD_WRONG_OPERATION = 7, /* arguments of another operation, or a tensor that this kernel was not built to take */
    POLYHEAD_WRONG_WEIGHTS = 8,   /* packed for another layout or problem */
    POLYHEAD_UNSUPPORTED = 9,     /* no variant for this CPU or these lengths, another ABI version, a batch row too large for a kernel */
    POLYHEAD_OUT_OF_MEMORY = 10,
    POLYHEAD_INTERNAL = 11,
    POLYHEAD_NO_DEVICE = 12,     /* no driver, no such device, a device that lacks what the code needs */
    POLYHEAD_WRONG_DEVICE = 13,  /* a tensor or the weights: not on the device that the arguments name, or not where the call can use it */
    POLYHEAD_WRONG_EXECUTOR = 14 /* an executor ran a task twice or not at all: see c_executor.h. The outputs are complete */
} polyhead_code;

typedef struct polyhead_status {
    int32_t code;      /* polyhead_code */
    char message[252]; /* one sentence, empty when ok: tensor, dimension, found, expected */
} polyhead_status;

/* What a variant runs on: the CPU, or a device that is used through one of these interfaces. */
typedef enum polyhead_api {
    POLYHEAD_CPU = 0,
    POLYHEAD_CUDA = 1,
    POLYHEAD_OPENCL = 2,
    POLYHEAD_VULKAN = 3,
    POLYHEAD_METAL = 4,
    POLYHEAD_WEBGPU = 5
} polyhead_api;

/* An open device, see c_device.h. */
typedef struct polyhead_device polyhead_device;

/* CPU features that a variant may need; bits of polyhead_variant.cpu_features. */
#define POLYHEAD_CPU_SSE41 (UINT64_C(1) << 0)
#define POLYHEAD_CPU_AVX (UINT64_C(1) << 1)
#define POLYHEAD_CPU_F16C (UINT64_C(1) << 2)
#define POLYHEAD_CPU_FMA (UINT64_C(1) << 3)
#define POLYHEAD_CPU_AVX2 (UINT64_C(1) << 4)              /* + BMI, BMI2, LZCNT, MOVBE, F16C, FMA: what compilers emit with it */
#define POLYHEAD_CPU_AVX512 (UINT64_C(1) << 5)            /* F, CD */
#define POLYHEAD_CPU_AVX512_SKYLAKE (UINT64_C(1) << 6)    /* + VL, BW, DQ */
#define POLYHEAD_CPU_AVX512_CANNONLAKE (UINT64_C(1) << 7) /* + IFMA, VBMI */
#define POLYHEAD_CPU_AVX512_BF16_VNNI (UINT64_C(1) << 8)  /* + BF16, VNNI, BITALG, VBMI2, VPOPCNTDQ */
#define POLYHEAD_CPU_SSE4A (UINT64_C(1) << 9)             /* AMD; code made for zen4 may use it */
#define POLYHEAD_CPU_AVXVNNI (UINT64_C(1) << 10)
#define POLYHEAD_CPU_AMX (UINT64_C(1) << 11)         /* tiles of bf16 and int8, and the operating system's permission */
#define POLYHEAD_CPU_AVX512_FP16 (UINT64_C(1) << 12) /* + GFNI; what compilers emit for Sapphire Rapids, without AMX */

/* The same of 64-bit ARM and RISC-V. */
#define POLYHEAD_CPU_ARM_ATOMICS (UINT64_C(1) << 32) /* what ARMv8.1-A and later have beyond ARMv8.0-A */
#define POLYHEAD_CPU_ARM_DOT_PROD (UINT64_C(1) << 33)
#define POLYHEAD_CPU_ARM_FP16 (UINT64_C(1) << 34)
#define POLYHEAD_CPU_ARM_SVE (UINT64_C(1) << 35)
#define POLYHEAD_CPU_ARM_SVE2 (UINT64_C(1) << 36)
#define POLYHEAD_CPU_RISCV_VECTOR (UINT64_C(1) << 48)

/* Bytes for each batch row, times the number of blocks of row_block rows, times the number of blocks of key_block keys. The last block may
 * be incomplete and counts in full; a block size of 0 counts as one block. With a row_block of -1: bytes of the call, once. A key/value
 * head has seq_len_q * num_heads / num_kv_heads rows. Where the kernel reads no keys after the longest key length of the call, only keys up
 * to that length count. in_window: only keys that the windows of all queries of a batch row reach together. */
typedef struct polyhead_scratch_term {
    int64_t bytes;
    int32_t row_block, key_block, in_window;
    int32_t query_bytes; /* of thread_keys: for each block of row_block queries of a head of a group */
} polyhead_scratch_term;

/* Memory that a variant takes while it runs. Each thread takes at most per_thread bytes and the bytes of the term thread_keys, which
 * depends on no batch rows, and on queries by query_bytes alone. The call takes the sum of the other terms. */
#define POLYHEAD_MAX_SCRATCH_TERMS 12
typedef struct polyhead_scratch {
    int64_t per_thread;
    polyhead_scratch_term thread_keys;
    polyhead_scratch_term terms[POLYHEAD_MAX_SCRATCH_TERMS];
} polyhead_scratch;

/* One compiled function and its facts. */
typedef struct polyhead_variant {
    const char *name;                     /* symbol, unique in a program */
    const char *target;                   /* Halide target string it was compiled for */
    const char *tiling;                   /* "key=value ..." of every knob */
    int (*entry)(void **argv);            /* Halide's argv convention */
    uint64_t cpu_features;                /* all of these must be present */
    int32_t api;                          /* polyhead_api */
    int32_t capability;                   /* CUDA: compute capability times 10 that the code was made for; otherwise 0. Newer devices run
                                             the code, too, unless capability_exact says that they do not */
    int32_t shared_bytes;                 /* shared memory of a block on the device, at most; 0 on a CPU */
    int32_t alignment;                    /* of query, key and value: address and outer strides are multiples of so many bytes, for tensors
                                             of another dtype than the problem's of as many elements; 0 = any. Otherwise out of a layer
                                             whose width is even is aligned to 2 elements, too, and a cache like key, if its rows are
                                             multiples of so many bytes */
    int32_t min_seq_len_q, max_seq_len_q; /* query lengths, inclusive; max 0 = no limit */
    polyhead_scratch scratch;
    uint32_t weight_layout;                 /* id that packed weights must have; 0 = takes no weights */
    uint32_t abi;                           /* POLYHEAD_ABI_VERSION it was generated for */
    int32_t min_group_size, max_group_size; /* query heads of a key/value head, inclusive; max 0 = no limit */
    int32_t capability_exact;               /* 1: no device of another capability runs the code */
    int32_t few_blocks_of;                  /* where a call has fewer blocks of so many queries than the device has multiprocessors, this
                                               variant is the better one, otherwise one behind it; 0 = in every call */
} polyhead_variant;

/* Sizes of the structs that a table is made of, as the program that holds it was compiled. */
typedef struct polyhead_sizes {
    uint32_t kernel, problem, variant, declaration;
} polyhead_sizes;
#define POLYHEAD_SIZES {sizeof(polyhead_kernel), sizeof(polyhead_problem), sizeof(polyhead_variant), sizeof(polyhead_declaration)}

/* A named problem and its variants, best first. Constant data, no initialisation needed. */
typedef struct polyhead_kernel {
    polyhead_sizes sizes; /* POLYHEAD_SIZES */
    polyhead_problem problem;
    const char *name;
    const polyhead_variant *variants;
    const polyhead_declaration *declarations; /* tensors of problem.expression, in the order of args.expression_tensors */
    int32_t num_variants;
    int32_t num_declarations;
    uint32_t expression_facts; /* bits POLYHEAD_EXPRESSION_ */
    uint32_t reserved;         /* 0 */
} polyhead_kernel;

/* What problem.expression reads, beside the score and its tensors. */
#define POLYHEAD_EXPRESSION_BATCH_ROW 1u  /* b, otherwise than as the index of a dimension that is declared as b */
#define POLYHEAD_EXPRESSION_KEY_LENGTH 2u /* seq_len_kv */

/* A caller-owned tensor. shape and stride are outermost first, strides in elements; rank 0 with data null = absent. The innermost stride
 * is 1 (kv_lengths and unpacked weights: any); strides of inputs may be 0 or negative; the stride of a dimension of one element is ignored.
 * On a device, data is what its API uses for memory: a CUDA device pointer (CUdeviceptr) or an OpenCL buffer (cl_mem). */
typedef struct polyhead_tensor {
    void *data;
    int32_t dtype; /* polyhead_dtype */
    int32_t rank;
    int64_t shape[POLYHEAD_MAX_RANK];
    int64_t stride[POLYHEAD_MAX_RANK];
    const polyhead_device *device; /* null: host memory */
    int64_t offset;                /* elements between data and the tensor's first element */
} polyhead_tensor;

/* Packed weights of an mha or linear kernel; memory owned by the caller, 64-byte aligned (see polyhead_pack). */
typedef struct polyhead_weights {
    const void *data;
    size_t bytes;
    uint32_t layout; /* id of layout and problem */
    int32_t panel;
    int32_t dtype;
    const polyhead_device *device; /* null: host memory */
} polyhead_weights;

/* Weights as nn.Linear stores them: [out_features, in_features], y = x W^T + b. Either in_proj (rows: query, key, value)
 * or the three separate ones. Biases are given exactly when the problem has them. linear uses out_proj and out_bias. */
typedef struct polyhead_weight_tensors {
    uint32_t size; /* sizeof(polyhead_weight_tensors) of the program's header */
    polyhead_tensor in_proj, in_bias;
    polyhead_tensor query, key, value;
    polyhead_tensor query_bias, key_bias, value_bias;
    polyhead_tensor out_proj, out_bias;
    /* With gate: [H*d_v,D], or [H,D] with one number of a head. Absent, query (and query_bias) have them: for each head d rows of query,
     * then those of its gate, as Qwen3-Next stores them. */
    polyhead_tensor gate, gate_bias;
} polyhead_weight_tensors;

/* Weight tensors of which none is given. */
static inline polyhead_weight_tensors polyhead_weight_tensors_of(void) {
    polyhead_weight_tensors tensors;
    memset(&tensors, 0, sizeof tensors);
    tensors.size = (uint32_t)sizeof tensors;
    return tensors;
}

/* Arguments of one call, begun by polyhead_args_of(). Unused tensors stay zeroed. */
typedef struct polyhead_args {
    uint32_t size;                   /* sizeof(polyhead_args) of the program's header */
    int32_t op;                      /* polyhead_op these arguments are for */
    polyhead_tensor query;           /* sdpa [B,H,T_q,d]; mha [B,T_q,D] (the one input of a self-attention layer); linear [M,K] */
    polyhead_tensor key;             /* sdpa [B,H_kv,T_kv,d]; mha with cross [B,T_kv,kdim] */
    polyhead_tensor value;           /* sdpa [B,H_kv,T_kv,d_v], none with value_in_key; mha with cross [B,T_kv,vdim] */
    const polyhead_weights *weights; /* mha, linear */
    polyhead_tensor kv_lengths;      /* int32 [B], 0..T_kv; absent = all keys valid */
    /* int32 [B, max_pages], exactly when the kernel was built with page_size. Then key and value are [pages,H_kv,page_size,d]. Key n of
     * batch row b is row n % page_size of page page_table[b][n / page_size], and T_kv = max_pages * page_size. Entries behind the valid
     * keys of a row are not read. The others are 0..pages-1 (not checked on a device). */
    polyhead_tensor page_table;
    /* f32, exactly when the kernel was built with int8_cache: [B,H_kv,T_kv,n], with pages [pages,H_kv,page_size,n]. n is 1, or the head
     * dimension / scale_channels. Key and value are int8 then, and entry d of a row counts as its integer times scale d / scale_channels of
     * that row. Scales of valid keys are finite and >= 0 (not checked on a device). No value_scales with value_in_key. */
    polyhead_tensor key_scales, value_scales;
    /* Exactly when a layer was built with cache: int32 [B], valid keys before the call; [B,H_kv,capacity,d] and the same of values, or
     * pages. The T new keys and values go behind the valid ones, and queries see all of them. T_kv is the capacity. */
    polyhead_tensor cache_lengths, key_cache, value_cache;
    /* Sequences of different lengths without padding (sdpa): int32 [B+1] in host memory, from 0 to the total, never falling. Sequence b has
     * queries cu_seqlens_q[b] .. cu_seqlens_q[b+1]-1: query and out are [1,H,total,d], lse is [1,H,total]. The same for keys; without
     * cu_seqlens_kv they are batch rows, or pages. Other tensors with a packed dimension have a batch of 1; the rest keep their B. */
    polyhead_tensor cu_seqlens_q, cu_seqlens_kv;
    polyhead_tensor out;       /* sdpa [B,H,T_q,d_v]; mha [B,T_q,D]; linear [M,N] */
    polyhead_tensor lse;       /* f32 [B,H,T_q], exactly when the kernel was built with lse */
    int32_t has_softmax_scale; /* 0: 1/sqrt(head_dim) */
    float softmax_scale;
    int32_t alignment;       /* polyhead_causal, for a kernel that uses positions (causal, window, alibi, rope); 0 = that of the
                                problem, or bottom_right when the problem is not causal */
    polyhead_device *device; /* null: the CPU. Otherwise tensors are there, or on the host and are copied there and back */
    /* Position of query q of batch row b: p = q + (bottom_right ? kv_length[b] - seq_len_q : 0) + position_offsets[b]. */
    polyhead_tensor position_offsets;   /* int32 [B], -2^27 to 2^27 (not checked on a device); absent = 0 */
    int32_t has_window;                 /* 0: unbounded on both sides */
    int32_t window_left, window_right;  /* keys p - left .. p + right take part; -1 = unbounded; with causal no key after p */
    polyhead_tensor mask, score_bias;   /* rank 1..4, broadcast as [B,H,T_q,T_kv]; absent = all take part, nothing added */
    float softcap;                      /* > 0, exactly when the kernel was built with softcap */
    polyhead_tensor alibi_slopes;       /* f32 [H] or [B,H]; absent = 0 */
    polyhead_tensor sinks;              /* f32 [H]; absent = none */
    polyhead_tensor rope_cos, rope_sin; /* f32 [P, rotary_dim / 2]: row n belongs to position n */
    /* int32 [B,T_q], 0..P-1; absent = p, at least 0 for a query that sees a key (on a device: row 0). With rope_sections [B,S,T_q], S = 2
     * or 3 directions; absent = the same position in each. */
    polyhead_tensor positions_q;
    polyhead_tensor positions_kv;              /* the same of T_kv keys; absent = 0, 1, 2 ...; with a cache of the new keys */
    polyhead_tensor head_gate;                 /* f32 [H]; absent = 1 */
    const polyhead_tensor *expression_tensors; /* kernel->num_declarations of them */
    int32_t num_expression_tensors;
    polyhead_tensor scores;       /* f32 [B,H,T_q,T_kv], exactly when the kernel was built with scores */
    polyhead_tensor weights_mean; /* f32 [B,T_q,T_kv], exactly when the kernel was built with weights_mean */
    /* Memory and threads of the caller, for calls on the CPU, as in polyhead_workspace: scratch_bytes as polyhead_scratch_bytes() says. */
    void *scratch;
    size_t scratch_bytes;
    const polyhead_executor *executor;
    const struct polyhead_plan *plan; /* null, or one of polyhead_make_plan(): its form is expected, and not checked again */
    polyhead_tensor gate;             /* sdpa [B,H,T_q,d_v] or [B,H,T_q,1], before the sigmoid, exactly when built with gate */
    /* f32 [d], or with norm_of_projection [H*d] and [H_kv*d]; absent = a factor of 1, nothing added */
    polyhead_tensor query_norm_weight, query_norm_bias, key_norm_weight, key_norm_bias;
    float norm_epsilon; /* > 0, exactly when the kernel was built with a norm */
    /* sdpa_backward: out and lse are what the forward call wrote, and inputs. The gradient of out [B,H,T_q,d_v], and those of query, key
     * and value, which have their shapes and are overwritten. */
    polyhead_tensor grad_out, grad_query, grad_key, grad_value;
    /* Exactly when the kernel was built with grad_score_bias, grad_alibi, grad_sinks and grad_gate: of the shapes of what they are
     * gradients of, also where that broadcasts. */
    polyhead_tensor grad_score_bias, grad_alibi_slopes, grad_sinks, grad_gate;
    /* When the kernel was built with dropout: each weight is 0 with this probability, 0 <= p < 1 in steps of 2^-16, and divided by 1 - p
     * otherwise. What is dropped is a pure function of seed, offset, b, h, q and kv, so a backward call with the same numbers drops the
     * same. lse, scores and weights are those without dropout. */
    float dropout_p;
    uint32_t dropout_offset;
    uint64_t dropout_seed;
    /* linear_backward: input [M,K] is query, grad_out is [M,N], and weight [N,K] lies as nn.Linear stores it, not packed. The gradients
     * have the shapes of input and weight, and are overwritten; grad_bias, f32 [N], exactly when the kernel was built with bias. */
    polyhead_tensor weight, grad_input, grad_weight, grad_bias;
    /* mha built with keep_heads: results, and inputs of mha_backward, of the storage type. Projected heads before norm and rotation
     * [B,H,T_q,d], [B,H_kv,T_kv,d], [B,H_kv,T_kv,d_v], gates before the sigmoid [B,H,T_q,d_v] or [B,H,T_q,1], and what the output
     * projection reads [B,H,T_q,d_v]. lse is among them. */
    polyhead_tensor query_heads, key_heads, value_heads, gate_heads, attended;
    /* mha_backward: query (with cross also key and value) is the input of the layer, grad_out is [B,T_q,D], and weights lie as nn.Linear
     * stores them: [H*d,D], [H_kv*d,kdim], [H_kv*d_v,vdim], [D,H*d_v], with gate [H*d_v,D] or [H,D]. */
    polyhead_tensor weight_q, weight_k, weight_v, weight_out, weight_gate;
    /* Their gradients, overwritten; grad_query, and with cross grad_key and grad_value, have the shapes of the inputs. Those of biases are
     * f32, of as many elements as the weight has rows, exactly when the kernel was built with bias. */
    polyhead_tensor grad_weight_q, grad_weight_k, grad_weight_v, grad_weight_out, grad_weight_gate;
    polyhead_tensor grad_bias_q, grad_bias_k, grad_bias_v, grad_bias_out, grad_bias_gate;
    /* Exactly when the kernel was built with grad_query_norm and grad_key_norm; those of biases with a layer norm. f32, of the extents of
     * the weights and biases, also where a call leaves these out. */
    polyhead_tensor grad_query_norm_weight, grad_query_norm_bias, grad_key_norm_weight, grad_key_norm_bias;
    /* sdpa_backward: the gradients that the expression asks for, in the order of the declarations: f32, of the shapes of their tensors,
     * and overwritten. */
    const polyhead_tensor *expression_gradients;
    int32_t num_expression_gradients;
} polyhead_args;

/* Arguments of which nothing is given but the operation. */
static inline polyhead_args polyhead_args_of(int32_t op) {
    polyhead_args args;
    memset(&args, 0, sizeof args);
    args.size = (uint32_t)sizeof args;
    args.op = op;
    return args;
}

/* Runs the best variant for this machine and these lengths. Thread-safe. Unless the status is ok, nothing was written to out or lse: the
 * scratch memory is allocated before the kernel starts. A system that promises more memory than it has (overcommit) may still end the
 * process when that memory is used. Floating-point state: round to nearest, denormals kept; the caller's state is restored. In a child
 * process of fork, calls on the CPU work as before; a device that the parent opened gives POLYHEAD_NO_DEVICE. An output has no element in
 * common with another tensor: they may be interleaved where their strides show that; on a device no address between the first and the last
 * element may be common. Integers that another thread changes during a call make its results undefined, but no access leaves the tensors. A
 * call that needs more memory in one piece than a kernel can index (2^31 bytes) is computed in parts of the batch, or of the queries. A
 * call, like every function of these headers, needs a stack of at most 128 KiB, and is no cancellation point: pthread_cancel() acts after
 * it. Between calls at most 384 MiB of memory are kept for the next ones: 256 MiB, and 8 MiB for each of 16 groups of threads. */
polyhead_status polyhead_run(const polyhead_kernel *kernel, const polyhead_args *args);
/* A call whose form was checked before: which tensors are given, their types, ranks, extents and strides, and the lengths of the call. With
 * such a plan in args.plan, polyhead_run() compares the form with that of the plan, and checks what may change from call to call: that
 * addresses are there, aligned and apart, numbers, and what integer tensors hold. A plan keeps no tensor, no weights and no executor.
 * Threads may use one at the same time. It must not outlive its kernel. */
typedef struct polyhead_plan polyhead_plan;
polyhead_status polyhead_make_plan(const polyhead_kernel *kernel, const polyhead_args *args, polyhead_plan **plan);
void polyhead_free_plan(polyhead_plan *plan); /* null: nothing */
/* Checks the arguments. Writes to text which variant would run, and why the variants before it would not. The text always ends with 0. */
polyhead_status polyhead_explain(const polyhead_kernel *kernel, const polyhead_args *args, char *text, size_t text_bytes);
/* The bytes that this call takes: args.scratch must have as many, for as many workers as the executor is wide, or, without one, as
 * polyhead_num_threads() says. args.scratch and args.scratch_bytes may be 0 here. When the arguments are refused: 0, and *status. */
int64_t polyhead_scratch_bytes(const polyhead_kernel *kernel, const polyhead_args *args, polyhead_status *status);

/* Bytes that packed weights of this problem take; 0 for sdpa. */
size_t polyhead_weights_bytes(const polyhead_kernel *kernel);
/* Packs into memory (64-byte aligned, polyhead_weights_bytes long) and fills *packed. The sources may be freed afterwards; each of them has
 * the problem's storage type or f32. Packed weights have the storage type, or f32 with f32_weights; packed biases are f32. What is rounded
 * is rounded once, to nearest even. */
polyhead_status polyhead_pack(const polyhead_kernel *kernel, const polyhead_weight_tensors *tensors, void *memory,
                              polyhead_weights *packed);
/* The same with threads of the caller; it takes no scratch memory. A null workspace is that of this library. */
polyhead_status polyhead_pack_in(const polyhead_workspace *workspace, const polyhead_kernel *kernel, const polyhead_weight_tensors *tensors,
                                 void *memory, polyhead_weights *packed);

/* Sets the number of threads that all kernels share, at most 256. 0 restores the default: HL_NUM_THREADS, or min(CPU affinity of the
 * process, cgroup quota). Helper threads run on the CPUs and with the priority of the process, not those of the caller, and take no
 * signals. It applies to calls that begin later and does not wait for running ones. */
void polyhead_set_num_threads(int32_t threads);
int32_t polyhead_num_threads(void);
/* How long, in microseconds, a helper thread that has nothing to do looks for the next call before it sleeps: 0 to 1,000,000, larger values
 * count as that. Looking takes processor time; waking a thread that sleeps takes some tens of microseconds. Below 0: the default, which is
 * the environment variable POLYHEAD_WAIT if that is a number of digits alone, or else 1000, or 20 where there are more threads than CPUs.
 * It applies to helpers when they become idle next. polyhead_wait() returns the present value. */
void polyhead_set_wait(int32_t microseconds);
int32_t polyhead_wait(void);
/* The CPU features that kernels may use: those of this CPU and operating system, within two limits.
 * The first is the environment variable POLYHEAD_CPU_FEATURES: none, or names of features such as avx2 or "avx512_skylake sse4a". A name
 * includes the features that it builds on. The variable is read once; the generator's target `host` obeys it too. If it holds a word that
 * is no feature, every call on the CPU is refused and the message says so. The second is polyhead_limit_cpu_features. */
uint64_t polyhead_cpu_features(void);
/* Limits kernels to these features (for tests and comparisons); ~0 removes this limit. Returns the previous limit. */
uint64_t polyhead_limit_cpu_features(uint64_t mask);
/* Writes the names of the bits to text, such as "avx512_skylake sse4a". The text always ends with 0. */
void polyhead_cpu_feature_names(uint64_t mask, char *text, size_t text_bytes);
const char *polyhead_version(void);
#ifdef __cplusplus
} /* extern "C" */
#endif
#include <polyhead/c_device.h>
#endif

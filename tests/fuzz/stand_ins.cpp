// Makes the kernels of fuzzed calls, and checks the buffers that stand-ins are given.
#include "stand_ins.h"

#include <everything_h4_kv2_d24.h>

#include "contract/tensors.h"
#include "contract/weight_layout.h"
#include "memory.h"
#include "runtime/kernel_interface.h"
#include "runtime/status.h"
#include "tests/runtime_fake.h"

namespace polyhead::fuzz {
namespace {

Problem with_everything(Problem p) {
    p.window = p.position_offsets = p.kv_lengths = p.score_bias = p.softcap = p.alibi = p.sinks = p.head_gate = 1;
    p.mask = POLYHEAD_BOOLEAN_MASK;
    p.rope = POLYHEAD_ROPE_HALF_SPLIT;
    p.rotary_dim = 6;
    p.gate = POLYHEAD_GATE_OF_HEADS;
    p.query_norm = POLYHEAD_LAYER_NORM;
    p.key_norm = POLYHEAD_RMS_NORM_PLUS_ONE;
    p.lse = p.weights_mean = 1;
    p.scores = POLYHEAD_LOGITS;
    p.expression = "kept"; // no one parses it here
    return p;
}

// Keys in pages, and caches.
Problem cache_problem_of(int number) {
    Problem p = test::sdpa(4, 2, 8, 6);
    switch (number) {
    case 14:
        p.page_size = 4, p.kv_lengths = p.lse = 1;
        return p;
    case 15: // integers with scales
        p.page_size = 4, p.int8_cache = p.kv_lengths = 1;
        return p;
    default: // a layer
        p = test::mha(8, 2);
        p.cache = p.bias = 1;
        p.causal = POLYHEAD_BOTTOM_RIGHT;
        p.rope = POLYHEAD_ROPE_HALF_SPLIT;
        return p;
    }
}

Problem problem_of(int number) {
    if (number > real_subject) {
        return cache_problem_of(number);
    }
    Problem p = test::sdpa(4, 2, 8, 6);
    switch (number) {
    case 1: // grouped heads, key lengths
        p.kv_lengths = p.lse = 1;
        p.causal = POLYHEAD_BOTTOM_RIGHT;
        return p;
    case 2:
        return with_everything(p);
    case 3: // masks with one element in a dimension
        p.mask = POLYHEAD_ADDITIVE_MASK;
        p.mask_broadcast = POLYHEAD_BROADCAST_Q;
        p.score_bias = 1;
        p.score_bias_broadcast = POLYHEAD_BROADCAST_Q | POLYHEAD_BROADCAST_KV;
        p.scores = POLYHEAD_WEIGHTS;
        return p;
    case 4: // rotation from lengths alone, or positions by direction
        p.rope = POLYHEAD_ROPE_INTERLEAVED;
        p.rope_sections = p.section_2 = p.section_3 = p.kv_lengths = p.position_offsets = 1;
        p.section_1 = 2, p.causal = POLYHEAD_TOP_LEFT;
        return p;
    case 5: // fixed lengths, 16 bits
        p.dtype = POLYHEAD_F16;
        p.seq_len_q = 3, p.seq_len_kv = 5;
        return p;
    case 6:
        p = test::mha(8, 2);
        p.bias = p.kv_lengths = p.lse = 1;
        return p;
    case 7:
        p = test::mha(8, 2);
        p.cross = p.bias = 1;
        p.kdim = 10, p.vdim = 12;
        return p;
    case 8:
        p = with_everything(test::mha(12, 2));
        p.dtype = POLYHEAD_BF16;
        return p;
    case 9:
        p = test::linear(7, 20);
        p.bias = 1;
        return p;
    case 10:
        p = test::linear(33, 1), p.dtype = POLYHEAD_F16;
        return p;
    case 11: // latent attention
        p.value_in_key = p.kv_lengths = 1;
        return p;
    case 12: // heads free at run time
        p = with_everything(p);
        p.num_heads = p.num_kv_heads = 0, p.group_size = 2;
        return p;
    default: // bare attention
        p.num_kv_heads = 4;
        return p;
    }
}

void check_buffer(const runtime::KernelBuffer &b, const char *what, bool output) {
    int64_t begin = 0, end = b.type.bytes();
    for (int i = 0; i < b.dimensions; ++i) {
        const runtime::KernelDimension &dim = b.dim[i];
        if (dim.min != 0 || dim.extent < 1) {
            fail("%s: dimension %d is %d from %d", what, i, dim.extent, dim.min);
        }
        const int64_t last = (dim.extent - int64_t(1)) * dim.stride * b.type.bytes();
        (last < 0 ? begin : end) += last;
    }
    if (!b.host) {
        if (!b.device) {
            fail("%s: no memory at all", what);
        }
        return;
    }
    const Memory &memory = Memory::get();
    const auto *first = reinterpret_cast<const char *>(b.host);
    const bool ours = !memory.is_input(first, first) && !memory.is_output(first, first); // a neutral element, weights, packed for a device
    if (!ours && !memory.is_output(first + begin, first + end) && (output || !memory.is_input(first + begin, first + end))) {
        fail("%s: bytes %lld to %lld lie outside of the caller's memory", what, static_cast<long long>(begin), static_cast<long long>(end));
    }
    // As a kernel would: reading everywhere, writing results only.
    volatile char seen = first[begin];
    seen = first[end - 1];
    (void)seen;
}

// Writes every element of an output on the host.
void write_elements(const runtime::KernelBuffer &b, int dimension, char *first) {
    if (dimension == b.dimensions) {
        std::memset(first, 0, static_cast<size_t>(b.type.bytes()));
        return;
    }
    for (int64_t i = 0; i < b.dim[dimension].extent; ++i) {
        write_elements(b, dimension + 1, first + i * b.dim[dimension].stride * b.type.bytes());
    }
}

} // namespace

Devices::Devices() : opencl(Api::opencl, 0, "Fake (opencl)") {
    cuda.allocate(block_bytes, &cuda_block);
    opencl.allocate(block_bytes, &opencl_block);
}

Subject::Subject(int number) {
    if (number == real_subject) {
        table = everything_h4_kv2_d24;
        real = true;
        return;
    }
    table.name = "fuzzed";
    table.problem = problem_of(number);
    table.variants = variants;
    table.num_variants = 3;
    if (table.problem.expression) {
        declarations = {{"table", POLYHEAD_F32, 2, {POLYHEAD_EXTENT_H, POLYHEAD_EXTENT_FREE}},
                        {"threshold", POLYHEAD_F32, 0, {}},
                        {"kept", POLYHEAD_BOOL, 2, {POLYHEAD_EXTENT_B, POLYHEAD_EXTENT_KV}},
                        {"pairs", POLYHEAD_I32, 4, {POLYHEAD_EXTENT_B, POLYHEAD_EXTENT_Q, 3, POLYHEAD_EXTENT_KV}}};
    }
    table.declarations = declarations.data();
    table.num_declarations = static_cast<int32_t>(declarations.size());
    for (polyhead_variant &v : variants) {
        v.name = "stand_in";
        v.target = "x86-64-linux";
        v.tiling = "q_tile=16";
        v.entry = entry_.function();
        v.weight_layout = contract::weight_layout_id(table.problem);
        v.abi = POLYHEAD_ABI_VERSION;
        v.scratch.per_thread = 1 << 10;
    }
    variants[0].alignment = 32;
    variants[0].max_seq_len_q = 16;
    variants[0].scratch.terms[0] = {1 << 8, 1, 32, 0};
    variants[1].api = POLYHEAD_CUDA;
    variants[1].capability = 80;
}

int Subject::call(void **argv) {
    ++calls;
    if (args) {
        check_buffers(argv + 1); // behind the user context
    }
    return 0;
}

void Subject::check_buffers(void **argv) const {
    const polyhead_problem &p = table.problem;
    const auto input = [&](const char *name) { check_buffer(*static_cast<const runtime::KernelBuffer *>(*argv++), name, false); };
    const auto output = [&](const char *name) {
        const auto &buffer = *static_cast<const runtime::KernelBuffer *>(*argv++);
        check_buffer(buffer, name, true);
        if (buffer.host) {
            write_elements(buffer, 0, reinterpret_cast<char *>(buffer.host));
        }
    };
    const auto rows = [taken = contract::taken_by(p)](const contract::TensorSet &set, const auto &visit) {
        for (const contract::TensorRow &row : taken &set) {
            visit(contract::said_of(row));
        }
    };
    rows(contract::operand_rows, input);
    for (const contract::WeightRow &row : contract::weight_rows) {
        for (int i = 0; i < (takes(p, row) ? 1 + (p.bias ? 1 : 0) : 0); ++i) {
            input("weights");
        }
    }
    rows(contract::option_rows, input);
    for (const polyhead_declaration &declared : declarations) {
        input(declared.name);
    }
    for (const contract::NumberRow &number : contract::numbers) {
        argv += takes(p, number) ? 1 : 0;
    }
    rows(contract::result_rows, output);
}

} // namespace polyhead::fuzz

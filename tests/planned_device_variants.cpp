// Which variants a kernel for devices has, and what is refused of their tilings.
#include "machines/machines.h"
#include "plan/plan.h"
#include "plan/target.h"

#include "instruments/calls/problems.h"
#include "refusals.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

const char *const cuda = "x86-64-linux-cuda-cuda_capability_80", *const older_cuda = "x86-64-linux-cuda-cuda_capability_75";

// The frame of each variant of a kernel with a number of its plan, in the order in which calls look for one.
template <typename Number> std::string frames_of(const Problem &p, const char *target, Number number) {
    std::string error, text;
    for (const gen::VariantPlan &plan : gen::plan_variants(p, {target}, "", &error)) {
        text += std::string(text.empty() ? "" : " ") + plan.frame->name() + " " + std::to_string(number(plan));
    }
    return text;
}

std::string most_queries(const Problem &p, const char *target) {
    return frames_of(p, target, [](const gen::VariantPlan &plan) { return plan.max_seq_len_q; });
}

// 1 behind the frames whose projections are products of a warp.
std::string by_warps(const Problem &p, const char *target = cuda) {
    return frames_of(p, target, [](const gen::VariantPlan &plan) { return plan.tiling.warp_products; });
}

} // namespace

TEST_CASE("generator: kernels for devices have a variant for few queries over splits of the keys, in front of the others") {
    Problem p = sdpa_problem(8, 64, 2);
    const auto frames = [&p](const char *target) { return most_queries(p, target); };
    const char *const opencl = "x86-64-linux-opencl";
    CHECK(frames(cuda) == "split_rows 16 thread_rows 0 thread_rows 0");
    CHECK(frames(opencl) == "split_tiles 16 block_tiles 0");
    CHECK(frames("x86-64-linux-vulkan") == "block_tiles 0");
    p.seq_len_kv = 128; // one split
    CHECK(frames(cuda) == "thread_rows 0 thread_rows 0");
    p.seq_len_kv = 0;
    p.seq_len_q = 17;
    CHECK(frames(opencl) == "block_tiles 0");
    p.seq_len_q = 0;
    p.weights_mean = 1;
    CHECK(frames(cuda) == "split_rows 16 thread_rows 0 thread_rows 0");
    p = mha_problem(64, 4);
    CHECK(frames(cuda) == "thread_rows 0"); // as few keys as queries
    p.cross = 1;
    CHECK(frames(cuda) == "split_rows 16 thread_rows 0");
    CHECK(frames(opencl) == "split_tiles 16 block_tiles 0");
    p.cross = 0;
    p.cache = 1;
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    CHECK(frames(cuda) == "split_rows 16 thread_rows 0");
    CHECK(frames(opencl) == "split_tiles 16 block_tiles 0");
    CHECK(frames("x86-64-linux-vulkan") == "block_tiles 0");
}

TEST_CASE("generator: 16-bit kernels for CUDA have a variant whose warps multiply, where their rows are whole copies") {
    const auto warps = [](const Problem &p, const char *target) {
        std::string error;
        int count = 0;
        for (const gen::VariantPlan &plan : gen::plan_variants(p, {target}, "", &error)) {
            count += std::string(plan.frame->name()) == "warp_tiles" && plan.few_blocks_of == 0;
        }
        return count;
    };
    for (const int32_t dtype : {POLYHEAD_F16, POLYHEAD_BF16}) {
        for (const int head_dim : {16, 64, 128, 40, 36, 144}) {
            Problem p = sdpa_problem(8, head_dim, 2);
            p.dtype = dtype;
            CHECK(warps(p, cuda) == (head_dim % 8 == 0 && head_dim <= 128));
            CHECK(warps(p, older_cuda) == 0);
        }
    }
    for (const int page_size : {1, 8, 16, 128}) {
        Problem p = sdpa_problem(8, 64, 2);
        p.dtype = POLYHEAD_F16;
        p.page_size = page_size;
        CHECK(warps(p, cuda) == (page_size >= 16));
    }
    Problem rotated = sdpa_problem(8, 64, 2);
    rotated.dtype = POLYHEAD_F16;
    rotated.rope = POLYHEAD_ROPE_INTERLEAVED;
    CHECK(warps(rotated, cuda) == 0);
    CHECK(warps(sdpa_problem(8, 64, 2), cuda) == 0);
}

TEST_CASE("generator: two blocks of warp tiles fit into a multiprocessor of every device") {
    for (const int head_dim : {64, 128}) {
        Problem p = sdpa_problem(8, head_dim);
        p.dtype = POLYHEAD_F16;
        std::string error;
        const auto plans = gen::plan_variants(p, {cuda}, "frame=warp_tiles", &error);
        REQUIRE(plans.size() == 1);
        CHECK(plans[0].tiling.kv_chunks == (head_dim == 64 ? 2 : 1));
    }
    const gen::Machine machine = gen::machine_for(gen::device_of(POLYHEAD_CUDA), 80); // its code runs on those of 100 KB, too
    CHECK(machine.blocks_at_once(48 << 10) == 2);
    CHECK(machine.blocks_at_once(64 << 10) == 1);
}

TEST_CASE("generator: tilings of warp tiles that make no sense are refused") {
    const auto plan = [](int32_t dtype, const char *tiling) {
        Problem p = sdpa_problem(2, 64);
        p.dtype = dtype;
        std::string error;
        CHECK(gen::plan_variants(p, {cuda}, tiling, &error).empty());
        return error;
    };
    check_sentence(plan(POLYHEAD_F16, "frame=warp_tiles kv_tile=24"), {"kv_tile 24 is not a multiple", "16 keys of a product of a warp"});
    check_sentence(plan(POLYHEAD_F16, "frame=warp_tiles kv_tile=256 thread_rows=4 kv_chunks=2"),
                   {"163840 bytes of shared memory", "at most 101376"});
    check_sentence(plan(POLYHEAD_F16, "frame=warp_tiles kv_tile=128 thread_rows=4 row_groups=1"), {"384 registers", "at most 256"});
    check_sentence(plan(POLYHEAD_F32, "frame=warp_tiles"), {"warp_tiles", "expected"});
}

TEST_CASE("generator: 16-bit linear layers for CUDA have a variant whose warps multiply, where their rows are whole copies") {
    std::string error;
    for (const int32_t dtype : {POLYHEAD_F32, POLYHEAD_F16, POLYHEAD_BF16}) {
        for (const int inputs : {8, 36, 768}) {
            Problem p = linear_problem(inputs, 100);
            p.dtype = dtype;
            CHECK(by_warps(p) ==
                  (dtype != POLYHEAD_F32 && inputs % 8 == 0 ? "linear 1 linear 1 linear 0" : "linear 0")); // few rows, all, threads
            CHECK(by_warps(p, older_cuda) == "linear 0");
            p.f32_weights = dtype != POLYHEAD_F32;
            CHECK(by_warps(p) == "linear 0");
        }
    }
    Problem p = linear_problem(64, 100);
    const auto refused = [&](const std::string &tiling) {
        CHECK(gen::plan_variants(p, {cuda}, "frame=linear warp_products=1" + tiling, &error).empty());
        return error;
    };
    check_sentence(refused(""), {"warp_products 1 needs f16 or bf16", "or f32 with precision tf32x3", "8.0"});
    p.dtype = POLYHEAD_F16;
    for (const int rows : {16, 17}) {
        Problem fixed = p;
        fixed.seq_len_q = rows;
        const std::vector<gen::VariantPlan> plans = gen::plan_variants(fixed, {cuda}, "", &error);
        REQUIRE(plans.size() == 2);
        CHECK(plans[0].tiling.linear_block == (rows == 16 ? 16 : 128));
    }
    check_sentence(refused(" linear_rows=3 linear_block=129"), {"linear_rows 3", "expected an even number"});
    check_sentence(refused(" linear_columns=4"), {"linear_columns 4", "8 or 16 columns"});
    check_sentence(refused(" linear_panels=6"), {"linear_panels 6", "whole warps, 64 rows and 64 columns"});
    check_sentence(refused(" linear_block=1024"), {"bytes of shared memory", "at most 101376"});
    p.embed_dim = 36;
    check_sentence(refused(""), {"embed_dim is 36", "multiple of 8"});
}

TEST_CASE("generator: 16-bit layers of attention for CUDA have a variant whose projections warps multiply") {
    Problem p = mha_problem(128, 4);
    CHECK(by_warps(p) == "thread_rows 0");
    p.dtype = POLYHEAD_BF16;
    CHECK(by_warps(p) == "warp_tiles 1 thread_rows 0");
    p.rope = POLYHEAD_ROPE_HALF_SPLIT;
    CHECK(by_warps(p) == "thread_rows 1 thread_rows 0");
    p.cross = 1; // splits for few queries, with the same products in front of them
    CHECK(by_warps(p) == "split_rows 1 thread_rows 1 split_rows 0 thread_rows 0");
    p.rope = POLYHEAD_NO_ROPE;
    CHECK(by_warps(p) == "split_rows 1 split_rows 0 warp_tiles 1 thread_rows 0");
    p.cross = 0;
    p.cache = 1;
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    CHECK(by_warps(p) == "split_rows 1 split_rows 0 warp_tiles 1 thread_rows 0"); // first of few rows
    p.rope = POLYHEAD_ROPE_HALF_SPLIT;
    CHECK(by_warps(p) == "split_rows 1 thread_rows 1 split_rows 0 thread_rows 0");
    for (const int queries : {1, 16, 17}) {
        Problem fixed = p;
        fixed.seq_len_q = queries;
        CHECK(by_warps(fixed) == (queries == 17 ? "thread_rows 1 thread_rows 0" : "split_rows 1 split_rows 0 thread_rows 0"));
    }
    for (Problem no_copies : {mha_problem(100, 4, 0, 32), mha_problem(128, 4, 0, 32, 12)}) {
        no_copies.dtype = POLYHEAD_BF16;
        CHECK(by_warps(no_copies) == "thread_rows 0");
    }
    Problem wide = mha_problem(128, 4);
    wide.dtype = POLYHEAD_F16;
    wide.f32_weights = 1;
    CHECK(by_warps(wide) == "thread_rows 0");
}

TEST_CASE("generator: layers of floats for CUDA have variants whose warps multiply, where precision is tf32x3 and rows are whole copies") {
    std::string error;
    Problem linear = linear_problem(64, 100), mha = mha_problem(128, 4);
    for (const int32_t precision : {POLYHEAD_IEEE, POLYHEAD_TF32X3}) {
        linear.precision = mha.precision = precision;
        const bool parts = precision == POLYHEAD_TF32X3;
        for (const int inputs : {6, 8, 36, 768}) {
            linear.embed_dim = inputs;
            CHECK(by_warps(linear) == (parts && inputs % 4 == 0 ? "linear 1 linear 1 linear 0" : "linear 0")); // few rows, all, threads
            CHECK(by_warps(linear, older_cuda) == "linear 0");
        }
        CHECK(by_warps(mha) == (parts ? "warp_tiles 1 thread_rows 0" : "thread_rows 0"));
    }
    mha.query_norm = POLYHEAD_RMS_NORM; // attention by threads, projections by warps
    CHECK(by_warps(mha) == "thread_rows 1 thread_rows 0");
    const auto refused = [&](int inputs, const std::string &tiling) {
        linear.embed_dim = inputs;
        CHECK(gen::plan_variants(linear, {cuda}, "frame=linear warp_products=1" + tiling, &error).empty());
        return error;
    };
    check_sentence(refused(66, ""), {"embed_dim is 66", "multiple of 4"});
    check_sentence(refused(64, " linear_block=54"), {"linear_rows 6", "whole warps, 48 rows and 64 columns"});
}

TEST_CASE("generator: a target with a capability that alone has products of four warps has code for all other devices, too") {
    std::string error;
    Problem p = sdpa_problem(8, 64, 2);
    p.dtype = POLYHEAD_BF16;
    const auto targets = [&](const std::string &capabilities, const char *tiling) {
        std::string text;
        for (const gen::VariantPlan &plan : gen::plan_variants(p, {"x86-64-linux-cuda" + capabilities}, tiling, &error)) {
            text += std::string(plan.frame->name()) + plan.target.substr(plan.target.rfind('_'));
            text += plan.few_blocks_of > 0 ? "/" + std::to_string(plan.few_blocks_of) + " " : " ";
        }
        return text;
    };
    const std::string only = "-cuda_capability_90a",
                      with_80 =
                          "split_rows_80 group_tiles_90a/64 group_tiles_90a warp_tiles_80/64 warp_tiles_80 thread_rows_80 thread_rows_80 ";
    CHECK(targets(only, "") == with_80);
    CHECK(targets("-cuda_capability_80" + only, "") == with_80);
    CHECK(targets("-cuda_capability_86" + only, "") ==
          "split_rows_86 group_tiles_90a/64 group_tiles_90a warp_tiles_86/64 warp_tiles_86 thread_rows_86 thread_rows_86 ");
    CHECK(targets("-cuda_capability_75" + only, "") == "split_rows_75 group_tiles_90a/64 group_tiles_90a thread_rows_75 thread_rows_75 ");
    CHECK(targets("-cuda_capability_80", "") == "split_rows_80 warp_tiles_80/64 warp_tiles_80 thread_rows_80 thread_rows_80 ");
    CHECK(targets(only, "frame=group_tiles") == "group_tiles_90a ");
    CHECK(targets(only, "frame=warp_tiles") == "warp_tiles_80 ");
    check_sentence(targets("-cuda_capability_80", "frame=group_tiles") + error, {"no frame 'group_tiles' serves"});
    const auto refused = [&](const char *tiling) {
        CHECK(targets(only, tiling).empty());
        return error;
    };
    check_sentence(refused("frame=group_tiles row_groups=6"), {"a multiple of 4", "found", "6"});
    check_sentence(refused("frame=group_tiles thread_rows=2"), {"thread_rows 1", "found 2"});
    check_sentence(refused("frame=group_tiles kv_chunks=1"), {"kv_chunks 3", "1"});
    check_sentence(refused("frame=warp_tiles kv_chunks=3"), {"kv_chunks", "3 places", "at most 2"});
    check_sentence(refused("frame=group_tiles row_groups=16 kv_tile=240"), {"212 registers", "at most 200"});
    p.causal = POLYHEAD_TOP_LEFT; // some blocks are short
    CHECK(targets("-cuda_capability_80", "") == "split_rows_80 warp_tiles_80/128 warp_tiles_80 thread_rows_80 thread_rows_80 ");
    p.rope = POLYHEAD_ROPE_HALF_SPLIT;
    CHECK(targets(only, "") == targets("-cuda_capability_80", ""));
}

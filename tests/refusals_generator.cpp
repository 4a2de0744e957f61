// What the generator refuses, and the sentence it says: the parameter, the value found, what is allowed.
#include <cstdio>
#include <filesystem>
#include <functional>
#include <sstream>
#include <stdexcept>

#include <unistd.h>

#include <Halide.h>

#include "compile/compile.h"
#include "compile/compiler_warnings.h"
#include "compile/device_code.h"
#include "compile/kernel_generator.h"
#include "plan/knob_rules.h"
#include "plan/target.h"
#include "plan/text.h"
#include "plan/tuning/tiling_space.h"

#include "instruments/calls/problems.h"
#include "refusals.h"

using namespace polyhead;
using namespace polyhead::test;

TEST_CASE("generator: what is left out is filled in") {
    Problem p = layer(768, 12);
    REQUIRE(gen::complete(&p) == "");
    CHECK(p.num_kv_heads == 12);
    CHECK(p.head_dim == 64);
    CHECK(p.head_dim_v == 64);
    CHECK(p.kdim == 768);
    CHECK(p.vdim == 768);
    CHECK(gen::refusal(p) == "");
    p.rope = POLYHEAD_ROPE_INTERLEAVED;
    p.expression = "";
    REQUIRE(gen::complete(&p) == "");
    CHECK(p.rotary_dim == 64);
    CHECK(p.expression == nullptr);
    for (int head_dim : {1, 576}) {
        for (int num_heads : {1, 128}) {
            CHECK(gen::refusal(sdpa_problem(num_heads, head_dim)) == "");
        }
    }
}

TEST_CASE("generator: unknown targets and tilings are refused in one sentence") {
    const auto plan = [](const std::string &target, const std::string &tiling) {
        std::string error;
        CHECK(gen::plan_variants(sdpa_problem(2, 8), {target}, tiling, &error).empty());
        return error;
    };
    check_sentence(plan("x86-64-linux-avx9", ""), {"x86-64-linux-avx9", "expected"});
    check_sentence(plan("toaster", ""), {"toaster", "expected"});
    check_sentence(plan("", ""), {"target", "expected"});
    check_sentence(plan("x86-32", ""), {"x86-32", "expected"});
    check_sentence(plan("host", "warp=3"), {"warp", "expected"});
    check_sentence(plan("host", "q_tile=-1"), {"q_tile", "-1", "expected"});
    check_sentence(plan("host", "q_tile=many"), {"q_tile", "many", "expected"});
    check_sentence(plan("host", "q_tile=1048577"), {"q_tile", "1048577", "a whole number from 0 to 1048576"});
    check_sentence(plan("host", "frame=round"), {"round", "expected"});
    check_sentence(plan("x86-64-linux-cuda-cuda_capability_80", "row_lanes=5"), {"row_lanes 5", "32"});
    check_sentence(plan("x86-64-linux-opencl", "frame=thread_rows row_lanes=2"), {"row_lanes 2", "1 threads"});
    check_sentence(plan("x86-64-linux-opencl", "frame=thread_rows kv_tile=4 masked_kv_tile=3"), {"masked_kv_tile 3", "kv_tile 4"});
    check_sentence(plan("x86-64-linux-opencl", "kv_tile=1024"), {"shared memory", "at most 32768"});
    check_sentence(plan("host", "frame=thread_rows"), {"thread_rows", "expected"});
    check_sentence(plan("x86-64-linux-opencl", "frame=query_lanes"), {"query_lanes", "expected"});
    std::string error = "left over";
    CHECK(gen::plan_variants(sdpa_problem(2, 8), {"x86-64-linux", "toaster"}, "", &error).empty());
    check_sentence(error, {"toaster"});
}

TEST_CASE("generator: a knob that the frame does not read is refused") {
    const auto plan = [](const Problem &p, const std::string &target, const std::string &tiling) {
        std::string error;
        CHECK(gen::plan_variants(p, {target}, tiling, &error).empty());
        return error;
    };
    const Problem sdpa = sdpa_problem(2, 8), linear = linear_problem(64, 64);
    check_sentence(plan(sdpa, "x86-64-linux", "frame=query_lanes row_tile=4"), {"row_tile is not read by frame query_lanes", "q_tile"});
    check_sentence(plan(sdpa, "x86-64-linux", "frame=head_lanes q_tile=32"), {"q_tile is not read by frame head_lanes", "row_tile"});
    check_sentence(plan(sdpa, "x86-64-linux", "linear_rows=2"), {"linear_rows is not read", "head_lanes or query_lanes"});
    check_sentence(plan(sdpa, "x86-64-linux-opencl", "masked_kv_tile=2"),
                   {"masked_kv_tile is not read by frame split_tiles or block_tiles"});
    check_sentence(plan(linear, "x86-64-linux", "linear_columns=8"), {"linear_columns is not read by frame linear"});
    std::string error;
    const auto plans = gen::plan_variants(sdpa, {"x86-64-linux"}, "q_tile=16 row_tile=2", &error); // each is read by one of two frames
    REQUIRE(plans.size() == 2);
    CHECK(plans[0].tiling.to_string().find("q_tile") == std::string::npos);
    CHECK(plans[1].tiling.to_string().find("row_tile") == std::string::npos);
    CHECK(gen::plan_variants(linear, {"x86-64-linux", "x86-64-linux-opencl"}, "linear_columns=8", &error).size() == 2);
}

TEST_CASE("generator: pairs of bf16 are refused where gradients are not multiplied by them") {
    Problem gradients = backward_problem(2, 64), turned;
    gradients.dtype = POLYHEAD_BF16;
    turned = gradients;
    turned.rope = POLYHEAD_ROPE_HALF_SPLIT;
    const auto check = [](Problem p, const std::string &target, const std::string &tiling, const char *sentence) {
        std::string error = gen::complete(&p);
        CHECK(error == "");
        CHECK(gen::plan_variants(p, {target}, tiling, &error).empty());
        check_sentence(error, {sentence});
    };
    const std::string zen4 = "x86-64-linux-avx512_zen4-avx512_cannonlake-avx512_skylake-avx512-avx2-avx-fma-f16c-sse41";
    check(gradients, "x86-64-linux-avx2-fma-f16c", "pair=2", "a machine with dot products of pairs");
    check(turned, zen4, "pair=2", "pair 2 needs bf16 in sdpa_backward, no rope, norms or gates");
    check(gradients, zen4, "score_rows=3 q_tile=60", "score_rows 3 is not a multiple of pair");
}

TEST_CASE("generator: a tiling that makes no sense is refused before anything is compiled") {
    const auto plan = [](Problem p, const std::string &target, const std::string &tiling) {
        std::string error = gen::complete(&p);
        CHECK(error == "");
        CHECK(gen::plan_variants(p, {target}, tiling, &error).empty());
        return error;
    };
    const Problem sdpa = sdpa_problem(2, 64), linear = linear_problem(64, 64);
    const char *const cpu = "x86-64-linux-avx2-fma-f16c", *const opencl = "x86-64-linux-opencl";
    const char *const cuda = "x86-64-linux-cuda-cuda_capability_80";
    check_sentence(plan(linear, opencl, "linear_columns=3"), {"linear_columns 3 does not divide", "16 columns of a weight panel"});
    check_sentence(plan(linear, opencl, "linear_block=20 linear_rows=8"), {"linear_block 20 is not a multiple of linear_rows 8"});
    check_sentence(plan(linear, opencl, "linear_rows=16 linear_columns=16"), {"256 registers", "at most 128"});
    check_sentence(plan(linear, opencl, "linear_block=93 linear_rows=1"), {"take 93 threads", "at most 64"});
    check_sentence(plan(linear, opencl, "linear_block=512 linear_rows=8 linear_panels=64"), {"threads", "at most 1024"});
    check_sentence(plan(linear, cpu, "linear_rows=32 linear_panels=16"), {"1024 registers", "at most 128"});
    check_sentence(plan(linear, cpu, "reduction_block=7"), {"reduction_block is 7", "expected 8 to"}); // would be taken as all
    check_sentence(plan(sdpa, cpu, "q_tile=4096 kv_tile=4096"), {"q_tile is 4096", "expected 1 to 256 in frame query_lanes"});
    check_sentence(plan(sdpa, cpu, "q_tile=256 kv_tile=2048 key_panel=2 value_panel=2"), {"logits", "bytes, expected at most"});
    check_sentence(plan(sdpa, cpu, "q_tile=128 key_panel=16"), {"scores", "256 registers"});
    check_sentence(plan(sdpa, cpu, "unscheduled=2"), {"unscheduled is 2", "0 to 1"});
    check_sentence(plan(sdpa_problem(2, 576), "x86-64-linux", "frame=head_lanes row_tile=32 key_unroll=32"), {"unrolled multiply-adds"});
    check_sentence(plan(sdpa, cuda, "frame=thread_rows row_lanes=32 row_groups=64"), {"2048 threads"});
    check_sentence(plan(sdpa, cuda, "frame=block_tiles kv_tile=1 thread_rows=8 row_lanes=1 row_groups=1"), {"512 registers", "256"});
    // A block has the largest extents of all its stages: statistics take 1 x 512 threads, lengths 8 x 64.
    check_sentence(plan(sdpa_problem(4, 8), cuda, "frame=block_tiles kv_tile=2 thread_rows=8 row_lanes=1 row_groups=64"), {"4096 threads"});
    check_sentence(plan(sdpa, cuda, "frame=thread_rows load_width=3"), {"load_width 3 does not divide"});
    check_sentence(plan(sdpa, cuda, "frame=split_rows row_lanes=4 row_groups=16"), {"64 threads", "divisor of the 32 threads"});
    check_sentence(plan(sdpa, cuda, "frame=split_rows row_lanes=4 row_groups=3"), {"12 threads", "divisor of the 32 threads"});
    check_sentence(plan(sdpa, cuda, "frame=split_rows split_len=48 kv_tile=4 row_groups=8"), {"split_len 48", "kv_tile x row_groups 32"});
    check_sentence(plan(sdpa, cuda, "frame=split_tiles split_len=33 kv_tile=2"), {"split_len 33 is not a multiple of kv_tile 2"});
    Problem long_query = sdpa;
    long_query.seq_len_q = 17;
    check_sentence(plan(long_query, cuda, "frame=split_rows"), {"split_rows serves query lengths up to 16", "found seq_len_q 17"});
    check_sentence(plan(sdpa, "x86-64-linux-vulkan", "frame=split_tiles"), {"no frame 'split_tiles' serves this problem"});
    // AMX multiplies bf16 that lies in memory in pairs.
    const char *const intel = "x86-64-linux-avx512_sapphirerapids-avx512-avx2-avx-fma-f16c-sse41";
    Problem linear_bf16 = linear, odd = linear_problem(63, 64), layer = mha_problem(64, 2), rotated = sdpa;
    for (Problem *p : {&linear_bf16, &odd, &layer, &rotated}) {
        p->dtype = POLYHEAD_BF16;
    }
    rotated.rope = POLYHEAD_ROPE_HALF_SPLIT;
    check_sentence(plan(linear, intel, "amx=1"), {"amx 1 needs bf16"});
    check_sentence(plan(linear_bf16, cpu, "amx=1"), {"amx 1 needs", "a target with dot products of pairs"});
    check_sentence(plan(odd, intel, "amx=1"), {"amx 1 needs an even number of inputs"});
    check_sentence(plan(linear_bf16, intel, "amx=1 linear_rows=4"), {"amx 1 has no linear_rows"});
    check_sentence(plan(linear_bf16, intel, "amx=1 unscheduled=1"), {"amx 1 needs a schedule"});
    check_sentence(plan(layer, intel, "frame=query_lanes amx=1 pair=1"), {"amx 1 needs pair 2"});
    check_sentence(plan(rotated, intel, "frame=query_lanes amx=1"), {"amx 1 needs pair 2 and no rope"});
    check_sentence(plan(sdpa, intel, "frame=query_lanes amx=1"), {"amx 1 needs pair 2"});
    layer.f32_weights = 1;
    check_sentence(plan(layer, intel, "frame=query_lanes amx=1"), {"amx 1 needs bf16, weights included"});
    Problem fixed = sdpa;
    fixed.seq_len_q = 100;
    check_sentence(plan(fixed, cpu, "frame=head_lanes"), {"head_lanes serves query lengths up to 16", "seq_len_q 100"});
}

TEST_CASE("generator: every value that a tuner tries lies in the range of its knob") {
    Problem problems[] = {sdpa_problem(4, 64), linear_problem(64, 64), layer(64, 4), linear_problem(64, 64), layer(64, 4)};
    problems[3].dtype = problems[4].dtype = POLYHEAD_F16;
    for (Problem &p : problems) {
        REQUIRE(gen::complete(&p) == "");
        for (const char *text :
             {"x86-64-linux", "x86-64-linux-avx512_skylake", "x86-64-linux-opencl", "x86-64-linux-cuda-cuda_capability_80"}) {
            const gen::Machine machine = gen::machine_of(gen::parsed_target(text));
            for (const gen::Frame *frame : gen::frames()) {
                if (!frame->serves(p, machine)) {
                    continue;
                }
                CHECK(gen::tiling_refusal(*frame, p, gen::default_tiling(*frame, p, machine, {}), machine) == "");
                for (const gen::KnobValues &knob : gen::tiling_space(*frame, p, machine)) {
                    for (const int value : knob.values) {
                        gen::Tiling tiling;
                        INFO(text << " " << frame->name() << " " << knob.knob << "=" << value);
                        CHECK(tiling.set(knob.knob, std::to_string(value)) == "");
                        CHECK(gen::range_refusal(*frame, p, tiling, machine) == "");
                    }
                }
            }
        }
    }
}

TEST_CASE("generator: a warning of the compiler ends the compilation as one sentence") {
    std::string error;
    const Problem p = sdpa_problem(1, 8);
    auto plans = gen::plan_variants(p, {"x86-64-linux-opencl"}, "frame=block_tiles", &error);
    REQUIRE(plans.size() == 1);
    plans[0].tiling.kv_tile = 155; // threads would read after the end of a chunk
    const std::string object = "warning_" + std::to_string(getpid()) + ".o";
    gen::compile_variant(p, plans[0], "warned", object, {}, false, &error);
    std::remove(object.c_str());
    check_sentence(error, {"the compiler warns"});
    const gen::CompilerWarnings outer;
    {
        const gen::CompilerWarnings inner;
        Halide::Internal::issue_warning("two\nlines\n");
        Halide::Internal::issue_warning("a second one");
        CHECK(inner.sentence() == "the compiler warns, which is an error here: two lines");
    }
    CHECK(outer.sentence() == "");
}

TEST_CASE("generator: a bool mask compiles where bytes are slow (WebGPU) or a feature of their own (Vulkan)") {
    std::string error;
    Problem p = sdpa_problem(1, 8);
    p.mask = POLYHEAD_BOOLEAN_MASK;
    const std::string target = GENERATE("x86-64-linux-webgpu", "x86-64-linux-vulkan");
    const auto plans = gen::plan_variants(p, {target}, "", &error);
    REQUIRE(plans.size() == 1);
    const std::string object = "bool_mask_" + std::to_string(getpid()) + ".o";
    const gen::CompiledVariant compiled = gen::compile_variant(p, plans[0], "bool_mask", object, {}, false, &error);
    CHECK(error == "");
    CHECK((compiled.shared_bytes > 0 && compiled.shared_bytes <= 32 << 10)); // exactly: tests/gpu_sources/check.py
    std::remove(object.c_str());
}

TEST_CASE("generator: 16-bit storage is refused where it does not exist, by target") {
    for (const int dtype : {POLYHEAD_F16, POLYHEAD_BF16}) {
        Problem p = sdpa_problem(2, 8);
        p.dtype = dtype;
        for (const char *target : {"x86-64-linux-vulkan", "arm-64-osx-metal", "x86-64-linux-webgpu"}) {
            std::string error;
            CHECK(gen::plan_variants(p, {target}, "", &error).empty());
            check_sentence(error, {"dtype " + gen::dtype_name(dtype), target, "expected f32"});
        }
        for (const char *target : {"x86-64-linux-cuda-cuda_capability_80", "x86-64-linux-opencl", "x86-64-linux", "arm-64-linux"}) {
            std::string error;
            CHECK(!gen::plan_variants(p, {target}, "", &error).empty());
            CHECK(error.empty());
        }
    }
}

TEST_CASE("generator: whatever the compiler throws becomes one sentence") {
    const auto sentence = [](const std::function<void()> &fails) {
        try {
            fails();
        } catch (...) {
            return gen::thrown_sentence();
        }
        return std::string("nothing was thrown");
    };
    CHECK(sentence([] { Halide::Expr(3) + Halide::Expr(); }).find("undefined") != std::string::npos);
    CHECK(sentence([] { throw std::runtime_error("two\nlines\n"); }) == "two lines");
    CHECK(sentence([] { throw 1; }) == "the compiler failed with an unknown exception");
}

TEST_CASE("generator: what targets of ARM and RISC-V require", "[algorithm]") {
    const auto required = [](const std::string &target) { return gen::cpu_features_of(gen::parsed_target(target)); };
    CHECK(required("arm-64-linux") == 0);
    CHECK(required("arm-64-linux-arm_dot_prod") == POLYHEAD_CPU_ARM_DOT_PROD);
    CHECK(required("arm-64-linux-arm_fp16-sve") == (POLYHEAD_CPU_ARM_FP16 | POLYHEAD_CPU_ARM_SVE));
    CHECK(required("arm-64-linux-sve2") == (POLYHEAD_CPU_ARM_SVE | POLYHEAD_CPU_ARM_SVE2));
    CHECK(required("arm-64-linux-armv84a") == (POLYHEAD_CPU_ARM_ATOMICS | POLYHEAD_CPU_ARM_DOT_PROD));
    CHECK(required("riscv-64-linux") == 0);
    CHECK(required("riscv-64-linux-rvv-vector_bits_256") == POLYHEAD_CPU_RISCV_VECTOR);
    CHECK(required("x86-64-linux") == 0);
}

TEST_CASE("generator: the code of a device can be changed before it is part of the object", "[algorithm]") {
    Problem p = sdpa_problem(2, 16);
    REQUIRE(gen::complete(&p) == "");
    const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("polyhead_device_code_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    for (const auto &[target, comment] : {std::pair("x86-64-linux-cuda-cuda_capability_80", "// as it was changed, and longer"),
                                          std::pair("x86-64-linux-opencl", "/* as it was changed, and longer */")}) {
        std::string error, before;
        const std::vector<gen::VariantPlan> plans = gen::plan_variants(p, {target}, "", &error);
        REQUIRE(error == "");
        const Halide::Target full =
            Halide::Target(target).with_feature(Halide::Target::NoRuntime).with_feature(Halide::Target::UserContext);
        const Halide::Module module = gen::kernel_generator(p, plans.at(0), full)->build_module("changed");
        Halide::Module changed = gen::with_device_text(module, [&, end = comment](const std::string &text) {
            before = text;
            return text + end;
        });
        CHECK(before.size() > 100);
        CHECK(changed.buffers().size() == module.buffers().size());
        const std::string object = (folder / "changed.o").string();
        changed.compile({{Halide::OutputFileType::object, object}});
        std::string bytes;
        REQUIRE(gen::read_file(object, &bytes));
        CHECK(bytes.find(before + comment) != std::string::npos);
        // The function that loads the code names its size.
        std::ostringstream printed;
        for (const Halide::Internal::LoweredFunc &function : changed.functions()) {
            printed << function.body;
        }
        CHECK(printed.str().find(std::to_string(before.size() + std::string(comment).size() + 1)) != std::string::npos);
    }
    std::filesystem::remove_all(folder);
}

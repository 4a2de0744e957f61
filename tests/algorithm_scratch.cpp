// Scratch memory that a kernel says it takes.
#include <filesystem>
#include <unistd.h>

#include "compile/compile.h"
#include "contract/problem_fields.h"
#include "plan/frames/frame.h"
#include "plan/scratch_terms.h"
#include "plan/target.h"

#include "instruments/calls/problems.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

const std::string avx2 = "x86-64-linux-avx2-fma-f16c";

Problem complete(Problem p) {
    REQUIRE(gen::complete(&p).empty());
    return p;
}

} // namespace

TEST_CASE("terms of scratch memory that a table of kernels has no room for share one") {
    Problem p = sdpa_problem(8, 64, 2);
    p.kv_lengths = p.score_bias = p.weights_mean = 1;
    p.mask = POLYHEAD_ADDITIVE_MASK;
    p = complete(p);
    std::string error;
    const std::vector<gen::VariantPlan> plans = gen::plan_variants(p, {avx2}, "", &error);
    REQUIRE(error == "");
    const gen::Machine machine = gen::machine_of(gen::parsed_target(plans[0].target));
    int64_t bytes = 0;
    for (int times = 1; times <= 40; times++) { // 40 are more than there is room for
        gen::ScratchTerms terms(*plans[0].frame, p, plans[0].tiling, machine);
        for (int i = 0; i < times; i++) {
            terms.add_staged_keys();
            terms.add_clean_chunks();
            terms.add_score_output();
            terms.add_attended();
        }
        int64_t all = 0;
        const polyhead_scratch scratch = terms.scratch();
        for (const polyhead_scratch_term &term : scratch.terms) {
            all += term.bytes;
        }
        bytes = times == 1 ? all : bytes;
        CHECK(all == times * bytes);
    }
    CHECK(bytes > 0);
}

TEST_CASE("scratch memory does not depend on how many queries a variant may serve") {
    const Problem p = complete(sdpa_problem(8, 64, 2));
    std::string error;
    std::vector<gen::VariantPlan> plans = gen::plan_variants(p, {avx2}, "frame=head_lanes", &error);
    REQUIRE(plans.size() == 1);
    const std::string object = (std::filesystem::temp_directory_path() / ("scratch_" + std::to_string(getpid()) + ".o")).string();
    std::vector<polyhead_scratch> found;
    for (const int32_t most : {16, INT32_MAX}) {
        plans[0].max_seq_len_q = most;
        found.push_back(gen::compile_variant(p, plans[0], "scratch", object, {}, false, &error).scratch);
        REQUIRE(error == "");
    }
    std::filesystem::remove(object);
    CHECK(found[0].per_thread == found[1].per_thread);
    for (size_t i = 0; i < POLYHEAD_MAX_SCRATCH_TERMS; i++) {
        CHECK(found[0].terms[i].bytes == found[1].terms[i].bytes);
        CHECK(found[0].terms[i].bytes >= 0);
    }
}

// What LLVM may round in several ways stands in one loop of a kernel. Of several copies a call takes one by how large it is, or by the
// padding of its keys, and a row would have other bits.
#include <Halide.h>

#include <map>
#include <regex>

#include "compile/kernel_generator.h"
#include "compile/lowering.h"
#include "instruments/calls/problems.h"
#include "support/catch.h"
#include "support/feature_matrix.h"
#include "support/sweep.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// How often there is each loop, and each place where a Func is computed.
class Copies : public Halide::Internal::IRVisitor {
public:
    std::map<std::string, int> count;

private:
    using IRVisitor::visit;
    void visit(const Halide::Internal::For *op) override {
        count[op->name]++;
        IRVisitor::visit(op);
    }
    void visit(const Halide::Internal::ProducerConsumer *op) override {
        count[op->name] += op->is_producer ? 1 : 0;
        IRVisitor::visit(op);
    }
};

// Those of the named Funcs that there are twice, in the code for AVX2.
std::string copies(const Problem &p, const std::string &funcs, const std::string &tiling = "") {
    std::string error, names;
    for (const gen::VariantPlan &plan : gen::plan_variants(p, {"x86-64-linux-avx2-fma-f16c-avx-sse41"}, tiling, &error, {"", false})) {
        const gen::Lowering lowering;
        const Halide::Target target(plan.target + "-no_runtime-no_bounds_query-user_context");
        (void)gen::kernel_generator(p, plan, target)->build_module("polyhead_kernel");
        Copies found;
        lowering.statement().accept(&found);
        CHECK_FALSE(found.count.empty());
        for (const auto &[name, count] : found.count) {
            names += count > 1 && std::regex_match(name, std::regex("(" + funcs + ")\\b.*")) ? name + "; " : "";
        }
    }
    return error + names;
}

const char *const rows_of_heads = "normalised_(query|key|value)|rotated_query|(key|value)_cache(_arg)?|"
                                  "(query|key|value)_(sum|mean|squares|factor)";

} // namespace

TEST_CASE("same bits: rows of heads are written and normalised by one loop") {
    Problem layer = mha_problem(16, 2);
    layer.cache = layer.norm_of_projection = 1;
    layer.query_norm = layer.key_norm = POLYHEAD_RMS_NORM;
    layer.rope = POLYHEAD_ROPE_HALF_SPLIT;
    layer.rotary_dim = 4;
    CHECK(copies(layer, rows_of_heads) == "");
    for (const int row : rotating_numbers(0, static_cast<int>(feature_rows().size()), 3)) {
        const Problem p = feature_problem(feature_rows()[static_cast<size_t>(row)]);
        INFO(generate_line(p));
        CHECK(copies(p, rows_of_heads) == "");
    }
}

TEST_CASE("same bits: rows of a tile of queries are added up by one loop") {
    Problem p = sdpa_problem(2, 8);
    p.kv_lengths = p.window = p.lse = 1;
    CHECK(copies(p, "row_sum|acc|merged", "frame=query_lanes") == "");
}

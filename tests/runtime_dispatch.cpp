// Which variant runs: CPU features, lengths, ABI; the message when none does; and which kernel of a set computes a problem.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../contract/cpu_features.h"
#include "runtime_fake.h"
#include "support/catch.h"
#include "support/entry.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

struct Table {
    std::vector<polyhead_variant> variants;
    std::vector<std::string> ran;
    std::vector<float> data = std::vector<float>(1024);
    Problem problem = sdpa(1, 1, 4, 4);

    std::vector<std::unique_ptr<Entry>> entries;

    void add(const char *name, uint64_t features, int32_t min_q = 1, int32_t max_q = 0) {
        entries.push_back(std::make_unique<Entry>([this, name](void **) {
            ran.push_back(name);
            return 0;
        }));
        polyhead_variant v{};
        v.name = name;
        v.target = "test";
        v.tiling = "q_tile=1";
        v.entry = entries.back()->function();
        v.cpu_features = features;
        v.min_seq_len_q = min_q;
        v.max_seq_len_q = max_q;
        v.weight_layout = contract::weight_layout_id(problem);
        v.abi = POLYHEAD_ABI_VERSION;
        variants.push_back(v);
    }
    Kernel kernel() const {
        return Kernel({POLYHEAD_SIZES, problem, "table", variants.data(), nullptr, static_cast<int32_t>(variants.size()), 0, 0, 0});
    }
    SdpaArgs args(int64_t seq_len_q) {
        SdpaArgs a;
        a.query = view(data.data(), {1, 1, seq_len_q, 4});
        a.key = a.value = view(data.data(), {1, 1, 2, 4});
        a.out = view(data.data() + 512, {1, 1, seq_len_q, 4});
        return a;
    }
    std::string runs(const SdpaArgs &call) {
        ran.clear();
        const Status status = kernel().run(call);
        return !status.ok() ? status.message() : ran.empty() ? "nothing" : ran[0];
    }
    std::string runs(int64_t seq_len_q) { return runs(args(seq_len_q)); }
};

int entry_calls = 0;
int counting_entry(void **) {
    ++entry_calls;
    return 0;
}

} // namespace

TEST_CASE("dispatch: group sizes", "[runtime]") {
    Table t;
    t.problem.num_heads = t.problem.num_kv_heads = 0;
    t.problem.free_group_size = 1;
    const auto add = [&](const char *name, int32_t max_q, int32_t min_group, int32_t max_group) {
        t.add(name, 0, 0, max_q);
        t.variants.back().min_group_size = min_group;
        t.variants.back().max_group_size = max_group;
    };
    add("small", 16, 1, 2);
    add("large", 16, 3, 0);
    add("long", 0, 0, 0);
    const auto runs = [&](int64_t heads, int64_t kv_heads, int64_t seq_len_q) {
        SdpaArgs a = t.args(seq_len_q);
        a.query = view(t.data.data(), {1, heads, seq_len_q, 4});
        a.key = a.value = view(t.data.data(), {1, kv_heads, 2, 4});
        a.out = view(t.data.data() + 512, {1, heads, seq_len_q, 4});
        return t.runs(a);
    };
    CHECK(runs(1, 1, 1) == "small");
    CHECK(runs(4, 2, 1) == "small");
    CHECK(runs(6, 2, 1) == "large");
    CHECK(runs(6, 6, 17) == "long");
    CHECK(runs(0, 0, 1) == "nothing");
    CHECK(runs(4, 3, 1) == "key: extent 3 of dimension 1, expected a divisor of the 4 heads of query");
    CHECK(runs(4, 0, 1) == "key: extent 0 of dimension 1, expected a divisor of the 4 heads of query");
    CHECK(runs(65536, 1, 1) == "query: extent 65536 of dimension 1, expected at most 65535");
    t.variants.pop_back();
    t.variants.pop_back();
    CHECK(runs(3, 1, 1) == "kernel table: no variant for seq_len_q 1 on this CPU: small serves group sizes 1 to 2");
    t.variants[0].max_group_size = 0;
    t.variants[0].min_group_size = 5;
    CHECK(runs(3, 1, 1) == "kernel table: no variant for seq_len_q 1 on this CPU: small serves group sizes from 5");
}

TEST_CASE("dispatch: CPU features", "[runtime]") {
    Table t;
    t.add("best", POLYHEAD_CPU_AVX512_SKYLAKE | POLYHEAD_CPU_AVX2);
    t.add("middle", POLYHEAD_CPU_AVX2);
    t.add("plain", 0);
    SECTION("only what is there") {
        FeatureLimit limit(0);
        CHECK(t.runs(2) == "plain");
        CHECK(polyhead_cpu_features() == 0);
        CHECK(t.kernel().supported());
        t.variants.pop_back();
        CHECK(!t.kernel().supported());
        CHECK(t.runs(2) == "kernel table: no variant for seq_len_q 2 on this CPU: best needs avx2 avx512_skylake, middle needs avx2");
    }
    SECTION("the best that the machine can run") {
        const uint64_t here = polyhead_cpu_features();
        const char *expected = (here & t.variants[0].cpu_features) == t.variants[0].cpu_features ? "best"
                               : here & POLYHEAD_CPU_AVX2                                        ? "middle"
                                                                                                 : "plain";
        CHECK(t.runs(2) == expected);
        FeatureLimit limit(~POLYHEAD_CPU_AVX512_SKYLAKE);
        CHECK(t.runs(2) == (here & POLYHEAD_CPU_AVX2 ? "middle" : "plain"));
    }
    SECTION("a limit adds nothing, and says what it was") {
        const uint64_t here = polyhead_cpu_features();
        CHECK(polyhead_limit_cpu_features(POLYHEAD_CPU_AVX2) == ~UINT64_C(0));
        CHECK((polyhead_cpu_features() & ~here) == 0);
        CHECK(polyhead_limit_cpu_features(~UINT64_C(0)) == POLYHEAD_CPU_AVX2);
        CHECK(polyhead_cpu_features() == here);
    }
}

TEST_CASE("dispatch: zen4 and AMX code only where they may run", "[runtime]") {
    Table t;
    t.add("amx", POLYHEAD_CPU_AMX);
    t.add("zen4", POLYHEAD_CPU_SSE4A);
    t.add("plain", 0);
    const uint64_t here = polyhead_cpu_features();
    CHECK(t.runs(1) == (here & POLYHEAD_CPU_AMX ? "amx" : here & POLYHEAD_CPU_SSE4A ? "zen4" : "plain"));
    {
        FeatureLimit limit(~(POLYHEAD_CPU_AMX | POLYHEAD_CPU_SSE4A));
        CHECK(t.runs(1) == "plain");
    }
    FeatureLimit limit(~POLYHEAD_CPU_SSE4A);
    t.variants.pop_back();
    const bool amx = (here & POLYHEAD_CPU_AMX) != 0;
    CHECK(t.runs(1) == (amx ? "amx" : "kernel table: no variant for seq_len_q 1 on this CPU: amx needs amx, zen4 needs sse4a"));
}

TEST_CASE("dispatch: features come in the order of the processors that brought them", "[runtime]") {
    const uint64_t here = polyhead_cpu_features();
    const uint64_t chain[] = {POLYHEAD_CPU_SSE41,
                              POLYHEAD_CPU_AVX,
                              POLYHEAD_CPU_AVX2,
                              POLYHEAD_CPU_AVX512,
                              POLYHEAD_CPU_AVX512_SKYLAKE,
                              POLYHEAD_CPU_AVX512_CANNONLAKE,
                              POLYHEAD_CPU_AVX512_BF16_VNNI};
    for (size_t i = 1; i < sizeof chain / sizeof chain[0]; ++i) {
        INFO("feature " << i);
        CHECK((!(here & chain[i]) || (here & chain[i - 1])));
    }
#if defined(__x86_64__)
    // The compiler's own view of this machine, without any limit.
    if (contract::cpu_feature_limit().mask != ~UINT64_C(0)) {
        return;
    }
    CHECK(((here & POLYHEAD_CPU_SSE41) != 0) == (__builtin_cpu_supports("sse4.1") != 0));
    CHECK(((here & POLYHEAD_CPU_SSE4A) != 0) == (__builtin_cpu_supports("sse4a") != 0));
    CHECK(((here & POLYHEAD_CPU_AVX512_SKYLAKE) != 0) ==
          (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")));
#endif
}

TEST_CASE("dispatch: lengths", "[runtime]") {
    Table t;
    t.add("decode", 0, 1, 16);
    t.add("prefill", 0, 17, 64);
    CHECK(t.kernel().run(t.args(0)).ok()); // nothing to compute needs no variant
    CHECK(t.ran.empty());
    CHECK(t.runs(1) == "decode");
    CHECK(t.runs(16) == "decode");
    CHECK(t.runs(17) == "prefill");
    CHECK(t.runs(65) ==
          "kernel table: no variant for seq_len_q 65 on this CPU: decode serves seq_len_q 1 to 16, prefill serves seq_len_q 17 to 64");
    t.add("long", 0, 65, 0);
    CHECK(t.runs(65) == "long");
    t.variants.erase(t.variants.begin(), t.variants.begin() + 2);
    CHECK(t.runs(3) == "kernel table: no variant for seq_len_q 3 on this CPU: long serves seq_len_q from 65");
    t.variants.clear();
    CHECK(t.runs(3) == "kernel table: no variant for seq_len_q 3 on this CPU");
}

TEST_CASE("dispatch: tables that are not ours", "[runtime]") {
    Table t;
    t.add("future", 0);
    t.variants[0].abi = POLYHEAD_ABI_VERSION + 1;
    const std::string now = std::to_string(POLYHEAD_ABI_VERSION), next = std::to_string(POLYHEAD_ABI_VERSION + 1);
    CHECK(t.runs(1) == "kernel table: no variant for seq_len_q 1 on this CPU: future was generated for ABI " + next + ", expected " + now);
    CHECK(!t.kernel().supported());
    t.variants[0].abi = POLYHEAD_ABI_VERSION;
    t.variants[0].entry = nullptr;
    CHECK(t.runs(1) == "kernel table: no variant for seq_len_q 1 on this CPU: future has no entry");
    t.variants[0].entry = counting_entry;
    CHECK(t.kernel().run(t.args(1)).ok());
    CHECK(entry_calls == 1);
    t.variants[0].weight_layout = 0xabcd;
    CHECK(t.runs(1) == "kernel table: no variant for seq_len_q 1 on this CPU: future reads weight layout 0000abcd, expected 00000000");
}

TEST_CASE("dispatch: explain", "[runtime]") {
    polyhead_set_num_threads(2);
    Table t;
    t.add("best", POLYHEAD_CPU_AVX2);
    t.add("decode", 0, 1, 16);
    t.add("prefill", 0);
    FeatureLimit limit(0);
    CHECK(t.kernel().explain(t.args(20)) == "table: sdpa, batch 1, seq_len_q 20, seq_len_kv 2, 2 threads\n"
                                            "  not best: needs avx2\n"
                                            "  not decode: serves seq_len_q 1 to 16\n"
                                            "  runs prefill: target test, scratch " +
                                                std::to_string(held_scratch(0, 0, 1)) + " bytes, tiling q_tile=1\n");
    CHECK(t.ran.empty());
    SdpaArgs wrong = t.args(20);
    wrong.key.shape[3] = 5;
    CHECK(t.kernel().explain(t.args(0)) == "table: sdpa, batch 1, seq_len_q 0, seq_len_kv 2, 2 threads\n"
                                           "  runs nothing: there is nothing to compute\n");
    CHECK(t.kernel().explain(wrong) == "refused: key: extent 5 of dimension 3, expected 4\n");
    // Any buffer size is respected.
    polyhead_args c = polyhead_args_of(POLYHEAD_MHA);
    const Kernel kernel = t.kernel();
    char text[16];
    for (size_t bytes = 0; bytes <= 8; ++bytes) {
        std::memset(text, 'x', sizeof text);
        CHECK(polyhead_explain(&kernel, &c, text, bytes).code == POLYHEAD_WRONG_OPERATION);
        if (bytes > 0) {
            CHECK(std::strlen(text) == bytes - 1);
        }
        CHECK(text[bytes] == 'x');
    }
    polyhead_set_num_threads(0);
}

TEST_CASE("dispatch: names of features", "[runtime]") {
    char text[256];
    polyhead_cpu_feature_names(POLYHEAD_CPU_AVX512_SKYLAKE | POLYHEAD_CPU_SSE4A, text, sizeof text);
    CHECK(std::string(text) == "avx512_skylake sse4a");
    polyhead_cpu_feature_names(0, text, sizeof text);
    CHECK(std::string(text).empty());
    polyhead_cpu_feature_names(POLYHEAD_CPU_AMX | UINT64_C(1) << 40, text, sizeof text);
    CHECK(std::string(text) == "amx unknown");
    polyhead_cpu_feature_names(POLYHEAD_CPU_AVX512_SKYLAKE, text, 5);
    CHECK(std::string(text) == "avx5");
    polyhead_cpu_feature_names(~UINT64_C(0), nullptr, 0);
}

TEST_CASE("registry: which kernel of a set", "[runtime]") {
    const auto kernel = [](const char *name, const Problem &p) {
        static const polyhead_variant variant = [] {
            polyhead_variant v{};
            v.name = "variant";
            v.abi = POLYHEAD_ABI_VERSION;
            return v;
        }();
        return Kernel({POLYHEAD_SIZES, p, name, &variant, nullptr, 1, 0, 0, 0});
    };
    Problem p = sdpa(12, 12, 64, 64), fixed = p, padded = p;
    fixed.seq_len_q = 128;
    padded.kv_lengths = 1;
    const Kernel free_kernel = kernel("free", p), fixed_kernel = kernel("fixed", fixed), padded_kernel = kernel("padded", padded),
                 layer = kernel("layer", mha(768, 12));
    const Kernel *set[] = {&layer, &padded_kernel, &free_kernel, &fixed_kernel};

    CHECK(find_kernel(set, 4, p) == &free_kernel);
    CHECK(find_kernel(set, 4, fixed) == &fixed_kernel);
    CHECK(find_kernel(set, 3, fixed) == &free_kernel);
    CHECK(find_kernel(set, 2, p) == &padded_kernel); // lengths may be left out of a call
    CHECK(find_kernel(set, 4, padded) == &padded_kernel);
    CHECK(find_kernel(set + 3, 1, p) == nullptr);
    CHECK(find_kernel(set, 0, p) == nullptr);
    Problem shorthand = p; // zeros mean the usual
    shorthand.num_kv_heads = shorthand.head_dim_v = 0;
    CHECK(find_kernel(set, 4, shorthand) == &free_kernel);
    CHECK(find_kernel(set, 4, mha(768, 12)) == &layer);

    CHECK(explain(set, 4, fixed) ==
          "fixed computes this problem (seq_len_q 128, seq_len_kv free); variants:\n  variant: needs nothing special\n");
    Problem wanted = sdpa(32, 8, 128, 96);
    wanted.causal = POLYHEAD_TOP_LEFT;
    wanted.lse = 1;
    CHECK(explain(set + 2, 1, wanted) ==
          "No kernel of the set computes this problem; the nearest, free, differs: num_heads 12, wanted 32; num_kv_heads 12, wanted 8; "
          "head_dim 64, wanted 128; head_dim_v 64, wanted 96; causal none, wanted top_left; lse 0, wanted 1.\n"
          "Add one with:\n  polyhead generate NAME --op sdpa --num-heads 32 --num-kv-heads 8 --head-dim 128 --head-dim-v 96 "
          "--causal top_left --lse --dtype f32\n");
    Problem cross = mha(384, 12);
    cross.cross = cross.bias = cross.kv_lengths = 1;
    cross.kdim = 100;
    cross.seq_len_kv = 77;
    CHECK(explain(set + 1, 1, cross) ==
          "No kernel of the set has operation mha.\nAdd one with:\n  polyhead generate NAME --op mha "
          "--embed-dim 384 --num-heads 12 --cross --kdim 100 --bias --kv-lengths --seq-len-kv 77 --dtype f32\n");
    CHECK(explain(set, 4, linear(5, 7)) ==
          "No kernel of the set has operation linear.\nAdd one with:\n  polyhead generate NAME --op linear "
          "--embed-dim 5 --out-features 7 --no-bias --dtype f32\n");
}

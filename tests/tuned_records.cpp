// Tuning records: what is read, what is refused with which sentence, which record is near, and what a plan makes of it.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "contract/problem_fields.h"
#include "plan/knob_rules.h"
#include "plan/plan.h"
#include "plan/target.h"
#include "plan/tuning/tiling_space.h"
#include "plan/tuning/tuned_records.h"

#include "instruments/calls/problems.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

const std::string avx512 = "x86-64-linux-avx512_skylake-fma-f16c-avx2-avx-sse41", avx2 = "x86-64-linux-avx2-fma-f16c";
const std::string zen4 = "x86-64-linux-avx512_zen4-avx512_cannonlake-" + avx512.substr(avx512.find("avx512_skylake"));

// An entry with one text in the place of another.
std::string entry(const std::string &what = "", const std::string &with = "") {
    std::string text = R"({"problem": "--op sdpa --num-heads 12 --head-dim 64", "target_class": "x86-64-avx512", "frame": "query_lanes",
        "tiling": "q_tile=48 kv_tile=96 key_panel=6", "min_seq_len_q": 17, "max_seq_len_q": 0, "median_ms": 1.5, "halide": ")" +
                       gen::halide_version() + R"(", "schedule_version": )" +
                       std::to_string(gen::frame_named("query_lanes")->schedule_version()) + "}";
    if (!what.empty()) {
        REQUIRE(text.find(what) != std::string::npos);
        text.replace(text.find(what), what.size(), with);
    }
    return text;
}

// An entry for GPUs, of lengths from `first` on.
std::string cuda_entry(const std::string &flags, const std::string &frame, const std::string &tiling, int first) {
    return R"({"problem": ")" + flags + R"(", "target_class": "cuda", "frame": ")" + frame + R"(", "tiling": ")" + tiling +
           R"(", "min_seq_len_q": )" + std::to_string(first) + R"(, "max_seq_len_q": 0, "median_ms": 1.5, "halide": ")" +
           gen::halide_version() + R"(", "schedule_version": )" + std::to_string(gen::frame_named(frame)->schedule_version()) + "}";
}

std::string file_of(const std::vector<std::string> &entries) {
    std::string text;
    for (const std::string &one : entries) {
        text += (text.empty() ? "" : ",\n") + one;
    }
    return R"({"format": 1, "records": [)" + text + "]}";
}

bool contains(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

// A file that is removed at the end.
struct RecordsFile {
    explicit RecordsFile(const std::string &text)
        : path(std::filesystem::temp_directory_path() / ("tuned_" + std::to_string(reinterpret_cast<uintptr_t>(this)) + ".json")) {
        std::ofstream(path) << text;
    }
    ~RecordsFile() { std::filesystem::remove(path); }
    std::filesystem::path path;
};

Problem complete(Problem p) {
    REQUIRE(gen::complete(&p).empty());
    return p;
}

} // namespace

TEST_CASE("a bad entry is one sentence, and the others serve") {
    const std::pair<std::string, std::string> bad[][2] = {
        {{"\"halide\": \"" + gen::halide_version(), "\"halide\": \"20.0.0"}, {"stale, measured with Halide 20.0.0", ""}},
        {{"\"schedule_version\": ", "\"schedule_version\": 99"}, {"stale, measured with version 99", "of frame query_lanes"}},
        {{"query_lanes", "query\\nlanes"},
         {"frame: found 'query lanes'",
          "expected one of head_lanes, query_lanes, split_rows, split_tiles, group_tiles, warp_tiles, thread_rows, block_tiles, linear"}},
        {{"query_lanes", "diagonal_lanes"},
         {"frame: found 'diagonal_lanes'",
          "expected one of head_lanes, query_lanes, split_rows, split_tiles, group_tiles, warp_tiles, thread_rows, block_tiles, linear"}},
        {{"q_tile=48", "q_tiles=48"}, {"unknown knob 'q_tiles'", ""}},
        {{"q_tile=48", "q_tile=many"}, {"q_tile is 'many'", ""}},
        {{"q_tile=48 kv_tile=96", "q_tile=4096 kv_tile=4096"}, {"q_tile is 4096, expected 1 to 256 in frame query_lanes", ""}},
        {{"q_tile=48 kv_tile=96 key_panel=6", "split_len=64"}, {"split_len is not read by frame query_lanes", ""}},
        {{"--op sdpa", "--op conv"}, {"--op is 'conv'", ""}},
        {{"--num-heads 12", "--frobs 12"}, {"found '--frobs'", ""}},
        {{"--num-heads 12", "--num-heads 4096"}, {"num-heads is '4096'", ""}},
        {{"--head-dim 64", "--head-dim"}, {"--head-dim is", ""}},
        {{"\"median_ms\": 1.5", "\"median_ms\": -1"}, {"median_ms: found -1", ""}},
        {{"\"median_ms\": 1.5", "\"median_ms\": \"fast\""}, {"median_ms: found \"fast\"", ""}},
        {{"\"min_seq_len_q\": 17,", ""}, {"min_seq_len_q: found nothing", "whole number"}},
        {{"\"max_seq_len_q\": 0", "\"max_seq_len_q\": 3"}, {"max_seq_len_q: found 3", "at least min_seq_len_q 17"}},
        {{"\"tiling\"", "\"tyling\""}, {"tiling: found nothing", "expected a string"}},
    };
    for (const auto &[change, parts] : bad) {
        const gen::TunedRecords all = gen::parse_records(file_of({entry(change.first, change.second), entry()}), "mine.json");
        CAPTURE(change.first, change.second);
        REQUIRE(all.complaints.size() == 1);
        CHECK(contains(all.complaints[0], "mine.json, record 1: "));
        CHECK(contains(all.complaints[0], parts.first));
        CHECK(contains(all.complaints[0], parts.second));
        CHECK(!contains(all.complaints[0], "\n"));
        REQUIRE(all.records.size() == 1);
        CHECK(all.records[0].index == 1);
    }
    for (const char *text : {"", "{", "[]", "5", "{\"records\": []}", "{\"format\": 2, \"records\": []}", "{\"format\": 1}", "\xff\xfe"}) {
        const gen::TunedRecords all = gen::parse_records(text, "mine.json");
        CHECK(all.records.empty());
        REQUIRE(all.complaints.size() == 1);
        CHECK(contains(all.complaints[0], "mine.json: found"));
    }
    for (const char *bracket : {"[", "{\"a\":"}) { // as deep as no stack is
        std::string deep = "{\"format\": 1, \"records\": [";
        for (int i = 0; i < 200000; i++) {
            deep += bracket;
        }
        const gen::TunedRecords all = gen::parse_records(deep, "mine.json");
        REQUIRE(all.complaints.size() == 1);
        CHECK(contains(all.complaints[0], "more than 16 levels"));
    }
    CHECK(gen::parse_records(file_of({entry("x86-64-avx512", "[[[[[[[[[[[[[[[[[[[[")}), "mine.json").complaints.empty()); // in a text
    CHECK(gen::parse_records(file_of({"5", "null", entry()}), "mine.json").complaints.size() == 2);
    CHECK(gen::parse_records(file_of({}), "mine.json").complaints.empty());
}

TEST_CASE("problems are read as the generate line has them") {
    for (Problem p : {sdpa_problem(12, 64), sdpa_problem(32, 128, 8), linear_problem(768, 2304)}) {
        p = complete(p);
        p.seq_len_q = 77;
        const std::string flags = contract::flags_of(p);
        Problem read{};
        std::shared_ptr<const std::string> expression;
        CHECK(gen::read_problem_flags(flags, &read, &expression) == "");
        CHECK(contract::flags_of(read) == flags);
        CHECK(gen::problem_distance(p, read) == 0);
    }
    Problem with{};
    std::shared_ptr<const std::string> expression;
    CHECK(gen::read_problem_flags("--op sdpa --num-heads 2 --head-dim 8 --expression 'mask=kv<=q'", &with, &expression) == "");
    REQUIRE(with.expression != nullptr);
    CHECK(std::string(with.expression) == "mask=kv<=q");
}

TEST_CASE("the nearest problem of the same kind of machine is found") {
    const gen::TunedRecords all = gen::parse_records(
        file_of({entry("--head-dim 64", "--head-dim 128"), entry(), entry("--num-heads 12", "--num-heads 96"), entry("avx512", "avx2"),
                 entry("\"min_seq_len_q\": 17, \"max_seq_len_q\": 0", "\"min_seq_len_q\": 2, \"max_seq_len_q\": 16")}),
        "mine.json");
    REQUIRE(all.complaints.empty());
    const auto nearest = [&](const Problem &p, const char *target_class = "x86-64-avx512") {
        return gen::nearest_records(all, complete(p), target_class);
    };
    const gen::TunedMatch same = nearest(sdpa_problem(12, 64));
    REQUIRE(same.records.size() == 2); // both ranges, by length
    CHECK(same.distance == 0);
    CHECK(same.records[0].min_seq_len_q == 2);
    CHECK(same.records[1].min_seq_len_q == 17);
    CHECK(nearest(sdpa_problem(12, 64), "x86-64-avx2").records.size() == 1);
    CHECK(nearest(sdpa_problem(12, 64), "arm-64").records.empty());
    const gen::TunedMatch near = nearest(sdpa_problem(16, 80));
    REQUIRE(near.records.size() == 2);
    CHECK(near.distance == Approx(2 * std::log2(80.0 / 64) + 0.1 * std::log2(16.0 / 12)));
    CHECK(nearest(sdpa_problem(12, 128)).records[0].problem.head_dim == 128);
    CHECK(nearest(sdpa_problem(100, 64)).records[0].problem.num_heads == 96);
    CHECK(nearest(sdpa_problem(12, 16)).records.empty()); // too far
    CHECK(nearest(linear_problem(768, 768)).records.empty());
    Problem fixed = sdpa_problem(12, 64), free = fixed;
    fixed.seq_len_q = 300;
    CHECK(gen::problem_distance(fixed, free) == Approx(0.1));
    CHECK(std::isinf(gen::problem_distance(free, fixed))); // one length does not decide for all
}

TEST_CASE("problems that differ in one field are apart") {
    for (const contract::ProblemField &field : contract::problem_fields) {
        const std::string name = field.name;
        // EXCLUDED: which pairs take which direction, how free heads are counted: they change no loop (docs/guides/tuning.md)
        if (name.rfind("section_", 0) == 0 || name == "group_size" || name == "free_group_size") {
            continue;
        }
        Problem p = mha_problem(64, 4), other = p;
        other.*(field.value) += 1;
        INFO(name);
        CHECK(gen::problem_distance(other, p) > 0);
    }
    Problem norms = mha_problem(64, 4), others = norms;
    norms.gate = POLYHEAD_GATE_OF_HEADS;
    norms.query_norm = POLYHEAD_RMS_NORM;
    others.query_norm = POLYHEAD_LAYER_NORM;
    CHECK(gen::problem_distance(norms, others) == Approx(0.15)); // no gate, another kind of norm
}

TEST_CASE("of several processors' records of one problem those of the first serve, whole") {
    const auto of = [](const std::string &processor, const std::string &first, const std::string &last) {
        return entry(R"("min_seq_len_q": 17, "max_seq_len_q": 0)",
                     R"("machine": {"cpu": ")" + processor + R"("}, "min_seq_len_q": )" + first + R"(, "max_seq_len_q": )" + last);
    };
    const gen::TunedRecords all = gen::parse_records(file_of({of("A", "17", "256"), of("A", "257", "0"), of("B", "1", "0")}), "f");
    REQUIRE(all.records.size() == 3);
    const auto found = gen::nearest_records(all, complete(sdpa_problem(12, 64)), "x86-64-avx512").records;
    REQUIRE(found.size() == 2);
    CHECK((found[0].processor == "A" && found[1].processor == "A" && found[1].min_seq_len_q == 257));
}

TEST_CASE("plans take the user's records, and defaults where none serves") {
    const RecordsFile file(file_of({entry()}));
    const Problem p = complete(sdpa_problem(12, 64));
    std::string error;
    std::vector<std::string> complaints;
    const auto plans = gen::plan_variants(p, {avx512}, "", &error, {file.path.string(), true}, &complaints);
    CHECK(error == "");
    CHECK(complaints.empty());
    REQUIRE(plans.size() == 2);
    CHECK(plans[0].frame->name() == std::string("query_lanes"));
    CHECK(plans[0].tiling.to_string() == "q_tile=48 kv_tile=96 key_panel=6 value_panel=4 pair=1");
    CHECK(plans[0].min_seq_len_q == 13); // decoding ends at 12 queries there, and the record begins where decoding can end
    CHECK(contains(plans[0].text(), "from record 1 of " + file.path.filename().string() + ", distance 0.00: --op sdpa"));
    CHECK(plans[1].frame->name() == std::string("head_lanes")); // decoding was not tuned
    CHECK(plans[1].record.empty());

    Problem half = p;
    half.dtype = POLYHEAD_BF16;
    const auto floats = gen::plan_variants(half, {avx512}, "", &error, {file.path.string(), true}); // computes with floats there
    REQUIRE(floats.size() == 2);
    CHECK(floats[0].tiling.to_string() == plans[0].tiling.to_string());
    CHECK(floats[1].record.empty());
    const auto pairs = gen::plan_variants(half, {"x86-64-linux-avx512_zen4"}, "", &error, {file.path.string(), true});
    REQUIRE(pairs.size() == 2);
    CHECK(pairs[0].record.empty());
    CHECK(pairs[1].record.empty());

    const auto none = gen::plan_variants(p, {avx512}, "", &error, {file.path.string(), false});
    CHECK(none[0].record.empty());
    const auto given = gen::plan_variants(p, {avx512}, "q_tile=16", &error, {file.path.string(), true});
    REQUIRE(given.size() == 2);
    CHECK(given[1].tiling.q_tile == 16); // what the user says wins over what he measured
    CHECK(given[1].record.empty());
    for (const auto &plan : gen::plan_variants(p, {avx2}, "", &error, {file.path.string(), true})) {
        CHECK(!contains(plan.record, file.path.filename().string()));
    }
    CHECK(gen::plan_variants(p, {avx512}, "", &error, {"/nowhere/at_all.json", true}).empty());
    CHECK(contains(error, "tuned: cannot read '/nowhere/at_all.json'"));

    const RecordsFile partly(file_of({"5", entry("q_tile=48 kv_tile=96 key_panel=6", "q_tile=20")}));
    const auto refused = gen::plan_variants(p, {avx512}, "", &error, {partly.path.string(), true}, &complaints);
    CHECK(complaints.size() == 1);
    for (const auto &plan : refused) { // 20 queries are no whole vectors: the record cannot be built
        CHECK(plan.tiling.q_tile != 20);
    }
}

TEST_CASE("of a target with a part for one capability alone each part takes its own records") {
    const auto of = [](const std::string &frame, const std::string &tiling) {
        return cuda_entry("--op sdpa --num-heads 12 --head-dim 64 --dtype f16", frame, tiling, 17);
    };
    Problem p = sdpa_problem(12, 64);
    p.dtype = POLYHEAD_F16;
    const auto plans_with = [&](const std::vector<std::string> &entries) {
        const RecordsFile file(file_of(entries));
        std::string error, text;
        for (const auto &plan :
             gen::plan_variants(complete(p), {"x86-64-linux-cuda-cuda_capability_90a"}, "", &error, {file.path.string(), true})) {
            text += std::string(plan.frame->name()) + plan.target.substr(plan.target.rfind('_')) + (plan.record.empty() ? " " : ":record ");
        }
        return text;
    };
    const std::string groups = of("group_tiles", "kv_tile=64"), warps = of("warp_tiles", "kv_tile=32");
    CHECK(
        plans_with({groups}) ==
        "split_rows_80 group_tiles_90a:record group_tiles_90a group_tiles_90a warp_tiles_80 warp_tiles_80 thread_rows_80 thread_rows_80 ");
    // Tensors whose rows do not begin at multiples of 16 bytes take thread rows, whatever was recorded.
    CHECK(plans_with({warps}) == "split_rows_80 group_tiles_90a group_tiles_90a warp_tiles_80:record thread_rows_80 thread_rows_80 ");
}

TEST_CASE("a record made where tiles have another size by default keeps its tiles to itself") {
    const RecordsFile file(file_of({entry("x86-64-avx512", "x86-64-avx512_zen4")}));
    std::string error;
    const auto tiling_of = [&](const Problem &p, const std::string &target) {
        const auto plans = gen::plan_variants(complete(p), {target}, "", &error, {file.path.string(), true});
        CHECK(error == "");
        const auto plan =
            std::find_if(plans.begin(), plans.end(), [](const auto &one) { return one.frame == gen::frame_named("query_lanes"); });
        REQUIRE(plan != plans.end());
        CHECK(contains(plan->record, file.path.filename().string()) == (target == zen4));
        return plan->tiling;
    };
    Problem plain = sdpa_problem(12, 64), rotated = plain, softcapped = plain;
    rotated.rope = POLYHEAD_ROPE_HALF_SPLIT;
    softcapped.softcap = 1;
    CHECK(tiling_of(plain, zen4).q_tile == 48);
    CHECK(tiling_of(softcapped, zen4).q_tile == 48);
    CHECK(tiling_of(rotated, zen4).q_tile == 32);
    CHECK(tiling_of(rotated, zen4).kv_tile == 128);
    CHECK(tiling_of(plain, avx512).q_tile == 32); // another kind of machine
}

TEST_CASE("a record with AMX gets a variant without it behind it, a record without AMX stays alone") {
    const std::string rapids =
        "x86-64-linux-avx512_sapphirerapids-avx512_zen4-avx512_cannonlake-" + avx512.substr(avx512.find("avx512_skylake"));
    Problem p = sdpa_problem(12, 64);
    p.dtype = POLYHEAD_BF16;
    const auto plans_of = [&](const std::string &tiling) {
        std::string record = entry("x86-64-avx512", "x86-64-avx512_amx");
        record.replace(record.find("--head-dim 64"), 13, "--head-dim 64 --dtype bf16");
        record.replace(record.find("q_tile=48 kv_tile=96 key_panel=6"), 32, tiling);
        const RecordsFile file(file_of({record}));
        std::string error, text;
        for (const auto &plan : gen::plan_variants(complete(p), {rapids}, "", &error, {file.path.string(), true})) {
            if (plan.frame == gen::frame_named("query_lanes")) {
                text += (plan.tiling.amx != 0 ? "amx" : "pairs") +
                        std::string(plan.record.empty() ? " by default from " : " recorded from ") + std::to_string(plan.min_seq_len_q) +
                        "; ";
            }
        }
        CHECK(error == "");
        return text;
    };
    CHECK(plans_of("q_tile=32 kv_tile=128 key_panel=8 amx=1") == "amx recorded from 9; pairs by default from 0; ");
    CHECK(plans_of("q_tile=32 kv_tile=128 key_panel=8") == "pairs recorded from 9; ");
}

TEST_CASE("a record by products of warps gets a variant without them behind it, a record without them stays alone") {
    const auto plans_of = [](const std::string &flags, Problem p, const std::string &tiling) {
        const RecordsFile file(file_of({cuda_entry(flags, p.op == POLYHEAD_LINEAR ? "linear" : "thread_rows", tiling, 0)}));
        std::string error, text;
        std::vector<std::string> complaints;
        p.dtype = POLYHEAD_F16;
        for (const auto &plan : gen::plan_variants(complete(p), {"x86-64-linux-cuda-cuda_capability_80"}, "", &error,
                                                   {file.path.string(), true}, &complaints)) {
            text += std::string(plan.frame->name()) + (plan.tiling.warp_products != 0 ? " by warps" : " by threads") +
                    (plan.record.empty() ? "; " : " as recorded; ");
        }
        CHECK(error == "");
        CHECK(complaints.empty());
        return text;
    };
    const std::string linear = "--op linear --embed-dim 64 --out-features 128 --dtype f16",
                      layer = "--op mha --num-heads 4 --embed-dim 128 --rope half_split --dtype f16";
    CHECK(plans_of(linear, linear_problem(64, 128), "warp_products=1 linear_columns=8") ==
          "linear by warps as recorded; linear by threads; ");
    CHECK(plans_of(linear, linear_problem(64, 128), "linear_rows=4 linear_block=16") == "linear by threads as recorded; ");
    // Another width: the block is that of the default, and threads serve what warps cannot.
    CHECK(plans_of(linear, linear_problem(128, 128), "warp_products=1 linear_rows=2 linear_columns=8 linear_block=16") ==
          "linear by warps as recorded; linear by threads; ");
    CHECK(plans_of(linear, linear_problem(66, 128), "warp_products=1") == "linear by threads; ");
    Problem rotated = mha_problem(128, 4);
    rotated.rope = POLYHEAD_ROPE_HALF_SPLIT;
    CHECK(plans_of(layer, rotated, "warp_products=1 linear_columns=8") == "thread_rows by warps as recorded; thread_rows by threads; ");
    // Threads that were found faster than attention by warps take its place.
    CHECK(plans_of("--op mha --num-heads 4 --embed-dim 128 --dtype f16", mha_problem(128, 4), "linear_rows=4 linear_block=16") ==
          "thread_rows by threads as recorded; ");
}

TEST_CASE("what a record says of itself is safe in a C string") {
    const std::string expression = R"(--head-dim 64 --expression 'mask = kv <= q # \" \\ x')";
    const RecordsFile file(file_of({entry("--head-dim 64", expression)}));
    const Problem p = complete(sdpa_problem(12, 64));
    std::string error;
    const auto plans = gen::plan_variants(p, {avx512}, "", &error, {file.path.string(), true});
    REQUIRE(plans.size() == 2);
    CHECK(contains(plans[0].record, "distance 0.30"));
    CHECK(plans[0].text().find_first_of("\"\\\n") == std::string::npos);
}

TEST_CASE("a fixed length takes the range that holds it, and what does not carry over is left out") {
    const RecordsFile file(file_of({entry("kv_tile=96", "kv_tile=96 value_panel=4")}));
    Problem p = sdpa_problem(12, 80);
    p.seq_len_q = p.seq_len_kv = 300;
    p = complete(p);
    std::string error;
    auto plans = gen::plan_variants(p, {avx512}, "", &error, {file.path.string(), true});
    REQUIRE(plans.size() == 1);
    CHECK(plans[0].tiling.to_string() == "q_tile=48 kv_tile=96 key_panel=6 value_panel=5 pair=1");
    p.seq_len_q = 1;
    plans = gen::plan_variants(p, {avx512}, "", &error, {file.path.string(), true});
    REQUIRE(plans.size() == 1);
    CHECK(plans[0].frame->name() == std::string("head_lanes"));
    CHECK(!contains(plans[0].record, file.path.filename().string()));
}

TEST_CASE("the shipped records are all usable") {
    for (const std::string &complaint : gen::shipped_records().complaints) {
        FAIL_CHECK(complaint);
    }
}

TEST_CASE("the space has the default tiling, every knob of its frame, and reasons") {
    for (const std::string &target : {avx512, avx2, std::string("x86-64-linux"), std::string("x86-64-linux-cuda-cuda_capability_80"),
                                      std::string("x86-64-linux-opencl")}) {
        const gen::Machine machine = gen::machine_of(gen::parsed_target(target));
        for (const Problem &given : {sdpa_problem(12, 64), sdpa_problem(8, 40), linear_problem(768, 2304)}) {
            const Problem p = complete(given);
            for (const gen::Frame *frame : gen::frames()) {
                if (!frame->serves(p, machine)) {
                    continue;
                }
                CAPTURE(target, frame->name(), contract::flags_of(p));
                const gen::Tiling defaults = gen::default_tiling(*frame, p, machine, {});
                CHECK(gen::candidate_refusal(*frame, p, defaults, machine) == "");
                const auto space = gen::tiling_space(*frame, p, machine);
                CHECK(space.empty() == (frame->schedule_version() == 0));
                for (const gen::KnobValues &knob : space) {
                    gen::Tiling one;
                    CHECK(one.set(knob.knob, "1") == "");
                    CHECK(knob.values.size() > 1);
                    CHECK(std::is_sorted(knob.values.begin(), knob.values.end()));
                }
            }
        }
    }
    const gen::Machine machine = gen::machine_of(gen::parsed_target(avx512));
    const Problem p = complete(sdpa_problem(12, 64));
    const auto why = [&](const std::string &text) {
        gen::Tiling t;
        REQUIRE(t.set_all(text) == "");
        const gen::Frame &frame = *gen::frame_named("query_lanes");
        return gen::candidate_refusal(frame, p, gen::default_tiling(frame, p, machine, t), machine);
    };
    CHECK(contains(why("q_tile=20"), "not a multiple of the 16 lanes"));
    CHECK(contains(why("kv_tile=50 key_panel=8"), "not a multiple of key_panel 8"));
    CHECK(contains(why("q_tile=64 key_panel=8 kv_tile=128"), "take 32 + 5 registers, expected at most 32"));
}

TEST_CASE("a tuner tries products of warps where a layer can have them, and blocks of whole warps") {
    const auto values = [](Problem p, const char *frame, const char *knob, const char *target) {
        REQUIRE(gen::complete(&p) == "");
        std::string text;
        for (const gen::KnobValues &known : gen::tiling_space(*gen::frame_named(frame), p, gen::machine_of(gen::parsed_target(target)))) {
            for (const int value : known.knob == knob ? known.values : std::vector<int>()) {
                text += std::to_string(value) + " ";
            }
        }
        return text;
    };
    const char *const cuda = "x86-64-linux-cuda-cuda_capability_80";
    Problem p = linear_problem(64, 64), heads = mha_problem(64, 4);
    CHECK(values(p, "linear", "warp_products", cuda) == "");
    p.dtype = heads.dtype = POLYHEAD_F16;
    CHECK(values(p, "linear", "warp_products", cuda) == "0 1 ");
    CHECK(values(p, "linear", "linear_columns", cuda) == "4 8 16 ");
    CHECK(values(p, "linear", "warp_products", "x86-64-linux-cuda-cuda_capability_75") == "");
    CHECK(values(p, "linear", "warp_products", "x86-64-linux-opencl") == "");
    CHECK(values(heads, "thread_rows", "warp_products", cuda) == "0 1 ");
    CHECK(values(heads, "warp_tiles", "warp_products", cuda) == ""); // it has them always
    const gen::Machine machine = gen::machine_of(gen::parsed_target(cuda));
    const auto refused = [&](const char *text) {
        gen::Tiling t;
        REQUIRE(t.set_all(text) == "");
        const gen::Frame &frame = *gen::frame_named("linear");
        return gen::candidate_refusal(frame, p, gen::default_tiling(frame, p, machine, t), machine);
    };
    CHECK(refused("warp_products=1 linear_rows=4 linear_columns=8 linear_panels=4 linear_block=64") == "");
    CHECK(contains(refused("warp_products=1 linear_rows=8 linear_columns=8 linear_block=32"), "whole warps, 64 rows"));
    p.embed_dim = 36;
    CHECK(values(p, "linear", "warp_products", cuda) == "");
}

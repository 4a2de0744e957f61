// Fuzzes tuning records: every text gives records and complaints of one sentence each; what is read can be looked up.
#include <cmath>
#include <cstdint>

#include "plan/tuning/tuned_records.h"
#include "sentence.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace polyhead;
    const std::string text(reinterpret_cast<const char *>(data), size);
    const gen::TunedRecords all = gen::parse_records(text, "fuzzed.json");
    if (text.find('\0') != std::string::npos && (!all.records.empty() || all.complaints.empty())) {
        fuzz::fail("a text with a zero byte, which JSON never has, was read", text.substr(0, 200));
    }
    for (const std::string &complaint : all.complaints) {
        fuzz::expect_sentence(complaint);
    }
    for (const gen::TunedRecord &record : all.records) {
        if (gen::problem_distance(record.problem, record.problem) != 0 &&
            !(record.problem.seq_len_q == 0 && std::isinf(gen::problem_distance(record.problem, record.problem)))) {
            fuzz::fail("a problem is not near itself", record.problem_text);
        }
        const gen::TunedMatch match = gen::nearest_records(all, record.problem, record.target_class);
        if (match.records.empty() || match.distance != 0) {
            fuzz::fail("a record does not serve its own problem", record.problem_text);
        }
        gen::Tiling again;
        if (!again.set_all(record.tiling.to_string()).empty()) {
            fuzz::fail("a tiling cannot be read back", record.tiling.to_string());
        }
    }
    return 0;
}

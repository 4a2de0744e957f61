// Tuning records: measured tilings by problem and kind of machine, read from JSON, refused when stale, found by nearness
// (docs/guides/tuning.md).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../frames/frame.h"

namespace polyhead::gen {

// "21.0.0", whose code the times are of.
std::string halide_version();

// One tiling that was best for query lengths min..max (max 0 = no limit) of a problem on machines of this class.
struct TunedRecord {
    std::string problem_text; // flags of polyhead generate
    Problem problem{};
    std::shared_ptr<const std::string> expression; // owns the text that problem.expression points to
    std::string target_class;
    const Frame *frame = nullptr;
    std::string processor; // that it was measured on; empty when unknown
    Tiling tiling;
    int32_t min_seq_len_q = 0, max_seq_len_q = 0;
    std::string file; // the file with this record
    int index = 0;    // from 0
};

struct TunedRecords {
    bool listed = false; // the text is a list of records, whatever its entries are
    std::vector<TunedRecord> records;
    std::vector<std::string> complaints; // a sentence for each entry that cannot be used, or for the whole file
};

// Reads the flags of one problem, as the generate line of a manifest has them; returns a sentence or nothing.
std::string read_problem_flags(const std::string &flags, Problem *problem, std::shared_ptr<const std::string> *expression);

// All usable entries of this JSON; `file` is its name in sentences.
TunedRecords parse_records(const std::string &json, const std::string &file);
// The same from a file; false and a sentence in *error when there is no such file.
bool read_records(const std::string &path, TunedRecords *records, std::string *error);
// Those of plan/tuning/records/, compiled in.
const TunedRecords &shipped_records();

// How far a problem is from the one that a record was measured for, as docs/guides/tuning.md defines it: 0 is the same, infinity never
// serves.
double problem_distance(const Problem &wanted, const Problem &recorded);
// Beyond this a record is not taken.
constexpr double farthest_distance = 1.0;

// The records of the nearest problem, by query length; none when all are too far. Of several processors' those of the first in the file,
// because a tuning is a whole: its ranges of lengths belong together.
struct TunedMatch {
    std::vector<TunedRecord> records;
    double distance = 0;
};
TunedMatch nearest_records(const TunedRecords &among, const Problem &problem, const std::string &target_class);

} // namespace polyhead::gen

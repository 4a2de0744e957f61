// Tuning records: JSON to records with a sentence per bad entry, and the lookup by nearness.
#include "tuned_records.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <limits>

#include <nlohmann/json.hpp>

#include "../../contract/problem_fields.h"
#include "../../machines/machines.h"
#include "../knob_rules.h"
#include "../text.h"
#include "shipped_records.h"

namespace polyhead::gen {
namespace {

using Json = nlohmann::json;
using contract::FieldKind;
using contract::ProblemField;

const ProblemField *field_of_flag(const std::string &flag) {
    for (const ProblemField &field : contract::problem_fields) {
        if (flag == contract::flag_of(field.name)) {
            return &field;
        }
    }
    return nullptr;
}

// A word or a number of this field; false when it is none.
bool read_value(const ProblemField &field, const std::string &word, int32_t *value) {
    if (field.kind == FieldKind::choice) {
        return contract::find_choice(field, word, value);
    }
    char *end = nullptr;
    const long number = std::strtol(word.c_str(), &end, 10);
    *value = static_cast<int32_t>(number);
    return !word.empty() && *end == 0 && number >= 0 && number <= field.high;
}

std::string bad_value(const std::string &flag, const std::string &word) {
    return "problem: " + flag + " is '" + word + "', expected what polyhead generate takes";
}

std::string bad_entry(const std::string &file, int number, const std::string &refusal) {
    return on_one_line(file + ", record " + std::to_string(number) + ": " + refusal);
}

// Names the first member that an entry lacks or that has a wrong type.
std::string missing(const Json &entry) {
    for (const char *name : {"problem", "target_class", "frame", "tiling", "halide"}) {
        const auto found = entry.find(name);
        if (found == entry.end() || !found->is_string()) {
            return std::string(name) + ": found " + (found == entry.end() ? "nothing" : found->dump()) + ", expected a string";
        }
    }
    for (const char *name : {"min_seq_len_q", "max_seq_len_q", "schedule_version"}) {
        const auto found = entry.find(name);
        if (found == entry.end() || !found->is_number_integer() || found->get<int64_t>() < 0 || found->get<int64_t>() > INT32_MAX) {
            return std::string(name) + ": found " + (found == entry.end() ? "nothing" : found->dump()) + ", expected a whole number from 0";
        }
    }
    const auto time = entry.find("median_ms");
    if (time == entry.end() || !time->is_number() || !(time->get<double>() > 0)) {
        return "median_ms: found " + (time == entry.end() ? std::string("nothing") : time->dump()) + ", expected milliseconds above 0";
    }
    return "";
}

// Why times of this entry do not apply to the code that is made now.
std::string staleness(const Json &entry, const Frame &frame) {
    const auto halide = entry.at("halide").get<std::string>();
    if (halide != halide_version()) {
        return "stale, measured with Halide " + halide + ", expected " + halide_version();
    }
    const int version = entry.at("schedule_version").get<int>(), now = frame.schedule_version();
    return version == now ? ""
                          : "stale, measured with version " + std::to_string(version) + " of frame " + frame.name() + ", expected " +
                                std::to_string(now);
}

// What no machine of the record's kind can be given.
std::string unusable_tiling(const TunedRecord &record) {
    Machine machine{nullptr, 1, 1};
    machine.device = device_of_kind(record.target_class);
    const std::string unread = unread_knobs({{record.frame, machine}}, record.problem, record.tiling);
    return unread.empty() ? range_refusal(*record.frame, record.problem, record.tiling, machine) : unread;
}

std::string read_entry(const Json &entry, TunedRecord *record) {
    if (!entry.is_object()) {
        return "found " + std::string(entry.type_name()) + ", expected an object";
    }
    std::string refusal = missing(entry);
    if (!refusal.empty()) {
        return refusal;
    }
    record->target_class = entry.at("target_class").get<std::string>();
    const auto frame = entry.at("frame").get<std::string>();
    record->frame = frame_named(frame);
    record->min_seq_len_q = entry.at("min_seq_len_q").get<int32_t>();
    record->max_seq_len_q = entry.at("max_seq_len_q").get<int32_t>();
    record->problem_text = entry.at("problem").get<std::string>();
    const auto machine = entry.find("machine");
    if (machine != entry.end() && machine->is_object() && machine->contains("cpu") && machine->at("cpu").is_string()) {
        record->processor = machine->at("cpu").get<std::string>();
    }
    if (!record->frame || record->frame->schedule_version() == 0) {
        return "frame: found '" + frame + "', expected one of " + frame_names();
    }
    if (record->max_seq_len_q != 0 && record->max_seq_len_q < record->min_seq_len_q) {
        return "max_seq_len_q: found " + std::to_string(record->max_seq_len_q) + ", expected at least min_seq_len_q " +
               std::to_string(record->min_seq_len_q) + ", or 0";
    }
    refusal = staleness(entry, *record->frame);
    if (refusal.empty()) {
        refusal = record->tiling.set_all(entry.at("tiling").get<std::string>());
    }
    if (refusal.empty()) {
        refusal = read_problem_flags(record->problem_text, &record->problem, &record->expression);
    }
    return refusal.empty() ? unusable_tiling(*record) : refusal;
}

// |log2 a/b|; 0 where neither has the number.
double octaves(int32_t a, int32_t b) {
    return a == b ? 0 : a <= 0 || b <= 0 ? 1 : std::abs(std::log2(double(a) / b));
}

double length_distance(int32_t wanted, int32_t recorded) {
    return wanted > 0 && recorded > 0 ? 0.2 * octaves(wanted, recorded) : wanted == recorded ? 0 : 0.1;
}

// Features that change the inner loops, and those that hardly do.
double feature_distance(const Problem &a, const Problem &b) {
    const auto differs = [](bool x, bool y, double weight) { return x != y ? weight : 0.0; };
    double distance = differs(a.causal != 0, b.causal != 0, 0.2) + differs(a.mask != 0, b.mask != 0, 0.2) +
                      differs(a.score_bias != 0, b.score_bias != 0, 0.2) + differs(a.rope != 0, b.rope != 0, 0.2) +
                      differs(a.window != 0, b.window != 0, 0.2) + differs(a.softcap != 0, b.softcap != 0, 0.2) +
                      differs(a.scores != 0, b.scores != 0, 0.2) + differs(a.weights_mean != 0, b.weights_mean != 0, 0.2) +
                      differs(a.cross != 0, b.cross != 0, 0.2) + differs(a.value_in_key != 0, b.value_in_key != 0, 0.2) +
                      differs(a.dropout != 0, b.dropout != 0, 0.2);
    for (const auto field : {&Problem::alibi,
                             &Problem::kv_lengths,
                             &Problem::lse,
                             &Problem::sinks,
                             &Problem::head_gate,
                             &Problem::bias,
                             &Problem::position_offsets,
                             &Problem::additive_in_storage,
                             &Problem::page_size,
                             &Problem::cache,
                             &Problem::shared_cache,
                             &Problem::gate,
                             &Problem::query_norm,
                             &Problem::key_norm,
                             &Problem::value_norm,
                             &Problem::norm_of_projection,
                             &Problem::value_from_key,
                             &Problem::grad_score_bias,
                             &Problem::grad_alibi,
                             &Problem::grad_sinks,
                             &Problem::grad_gate,
                             &Problem::grad_query_norm,
                             &Problem::grad_key_norm,
                             &Problem::keep_heads}) {
        distance += differs(a.*field != 0, b.*field != 0, 0.05);
    }
    for (const auto field : {&Problem::causal, &Problem::mask, &Problem::mask_broadcast, &Problem::score_bias_broadcast, &Problem::rope,
                             &Problem::scores, &Problem::rotary_dim, &Problem::rope_sections, &Problem::scale_channels, &Problem::gate,
                             &Problem::query_norm, &Problem::key_norm}) {
        distance += a.*field != b.*field ? 0.05 : 0;
    }
    return distance + (contract::one_line(a.expression) != contract::one_line(b.expression) ? 0.3 : 0);
}

} // namespace

std::string halide_version() {
    return POLYHEAD_HALIDE_VERSION;
}

std::string read_problem_flags(const std::string &flags, Problem *problem, std::shared_ptr<const std::string> *expression) {
    TextReader words(flags);
    std::string flag, word;
    while (words >> flag) {
        const ProblemField *field = field_of_flag(flag);
        if (flag == "--expression" && words >> std::quoted(word, '\'')) {
            *expression = std::make_shared<const std::string>(word);
            problem->expression = (*expression)->c_str();
        } else if (field && field->kind == FieldKind::yes_no) {
            problem->*(field->value) = 1;
        } else if (field) {
            if (!(words >> word) || !read_value(*field, word, &(problem->*(field->value)))) {
                return bad_value(flag, word);
            }
        } else if (flag != "--no-bias") {
            return "problem: found '" + flag + "', expected flags of polyhead generate";
        }
    }
    const std::string refusal = flags.empty() ? "found nothing, expected flags of polyhead generate" : complete(problem);
    return refusal.empty() ? "" : "problem: " + refusal;
}

namespace {

// Records are three levels deep. The parser's values are copied and destroyed by recursion, so a text is refused before it becomes one.
constexpr int most_levels = 16;

bool nested_too_deep(const std::string &json) {
    int level = 0;
    bool quoted = false;
    for (size_t i = 0; i < json.size(); i++) {
        const char c = json[i];
        if (quoted) {
            i += c == '\\' ? 1 : 0;
            quoted = c != '"';
            continue;
        }
        quoted = c == '"';
        level += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
        if (level > most_levels) {
            return true;
        }
    }
    return false;
}

} // namespace

TunedRecords parse_records(const std::string &json, const std::string &file) {
    TunedRecords all;
    if (nested_too_deep(json)) {
        all.complaints.push_back(file + ": found JSON of more than " + std::to_string(most_levels) +
                                 " levels, expected tuning records {\"format\": 1, \"records\": [...]}");
        return all;
    }
    // The parser takes a zero byte for the end of the text, other readers do not.
    const bool whole = json.find('\0') == std::string::npos;
    const Json document = whole ? Json::parse(json, nullptr, false) : Json(Json::value_t::discarded);
    all.listed = document.is_object() && document.value("format", Json()) == 1 && document.value("records", Json()).is_array();
    if (!all.listed) {
        all.complaints.push_back(file + ": found " + (document.is_discarded() ? "text that is not JSON" : "other JSON") +
                                 ", expected tuning records {\"format\": 1, \"records\": [...]}");
        return all;
    }
    int index = 0;
    for (const Json &entry : document.at("records")) {
        TunedRecord record;
        const std::string refusal = read_entry(entry, &record);
        record.file = file;
        record.index = index++;
        if (refusal.empty()) {
            all.records.push_back(record);
        } else {
            all.complaints.push_back(bad_entry(file, index, refusal));
        }
    }
    return all;
}

bool read_records(const std::string &path, TunedRecords *records, std::string *error) {
    std::string text;
    if (!read_file(path, &text)) {
        *error = "tuned: cannot read '" + path + "', expected a file of tuning records";
        return false;
    }
    *records = parse_records(text, std::filesystem::path(path).filename().string());
    return true;
}

const TunedRecords &shipped_records() {
    static const TunedRecords *const shipped = [] {
        auto *all = new TunedRecords;
        for (const ShippedRecordsFile &file : shipped_records_files()) {
            const TunedRecords some = parse_records(file.json, file.name);
            all->records.insert(all->records.end(), some.records.begin(), some.records.end());
            all->complaints.insert(all->complaints.end(), some.complaints.begin(), some.complaints.end());
        }
        return all;
    }();
    return *shipped;
}

double problem_distance(const Problem &wanted, const Problem &recorded) {
    // A tiling for one fixed length does not apply to a kernel for all lengths.
    const bool too_fixed = wanted.seq_len_q == 0 && recorded.seq_len_q != 0;
    if (wanted.op != recorded.op || wanted.dtype != recorded.dtype || wanted.int8_cache != recorded.int8_cache ||
        wanted.f32_weights != recorded.f32_weights || wanted.precision != recorded.precision || too_fixed) {
        return std::numeric_limits<double>::infinity();
    }
    double distance = octaves(wanted.head_dim, recorded.head_dim) + octaves(wanted.head_dim_v, recorded.head_dim_v);
    distance += 0.3 * octaves(contract::group_size_of(wanted), contract::group_size_of(recorded)) +
                0.1 * octaves(wanted.num_heads, recorded.num_heads);
    for (const auto width : {&Problem::embed_dim, &Problem::out_features, &Problem::kdim, &Problem::vdim}) {
        distance += 0.2 * octaves(wanted.*width, recorded.*width);
    }
    distance += length_distance(wanted.seq_len_q, recorded.seq_len_q) + length_distance(wanted.seq_len_kv, recorded.seq_len_kv);
    return distance + feature_distance(wanted, recorded);
}

TunedMatch nearest_records(const TunedRecords &among, const Problem &problem, const std::string &target_class) {
    TunedMatch match;
    match.distance = farthest_distance;
    std::string nearest, processor;
    for (const TunedRecord &record : among.records) {
        const double distance = record.target_class == target_class ? problem_distance(problem, record.problem) : 2 * farthest_distance;
        if (distance < match.distance || (nearest.empty() && distance == match.distance)) {
            match.distance = distance;
            nearest = record.problem_text;
            processor = record.processor;
        }
    }
    for (const TunedRecord &record : among.records) {
        if (!nearest.empty() && record.target_class == target_class && record.problem_text == nearest && record.processor == processor) {
            match.records.push_back(record);
        }
    }
    std::stable_sort(match.records.begin(), match.records.end(),
                     [](const TunedRecord &a, const TunedRecord &b) { return a.min_seq_len_q < b.min_seq_len_q; });
    return match;
}

} // namespace polyhead::gen

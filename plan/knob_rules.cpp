// The table of knobs applied to a frame: which knobs it reads, which values are refused, which a tuner tries; and the table as text.
#include "knob_rules.h"
#include "../contract/problem.h"
#include "frames/linear.h"
#include "frames/warp_tiles.h"

#include <algorithm>
#include <climits>

#include "target.h"

namespace polyhead::gen {
namespace {

// The names of the frames that read a knob, or of users that are no frames.
std::string name_of(KnobUser user) {
    std::string names;
    for (const Frame *frame : frames()) {
        if (frame->reads(user) && user != KnobUser::everyone) {
            names += (names.empty() ? "" : ", ") + std::string(frame->name());
        }
    }
    return !names.empty()                 ? names
           : user == KnobUser::linear_cpu ? "linear, mha and their gradients"
           : user == KnobUser::linear_gpu ? "linear, mha (GPU)"
                                          : "every frame";
}

bool reads(const Frame &frame, KnobUser user, const Problem &p, const Machine &machine) {
    const bool of_layers = contract::projects(p) && user == (machine.gpu() ? KnobUser::linear_gpu : KnobUser::linear_cpu);
    const bool of_gradients = contract::projects(p) && contract::is_backward(p) && user == KnobUser::linear_gradients;
    return user == KnobUser::everyone || frame.reads(user) || of_layers || of_gradients;
}

int number_of(Quantity quantity, const Problem &p, const Machine &machine) {
    switch (quantity) {
    case Quantity::one:
        return 1;
    case Quantity::lanes:
        return machine.lanes;
    case Quantity::warp:
        return machine.warp();
    case Quantity::product_depth: {
        const Product *product = product_for(p, machine);
        return product ? product->k : 1;
    }
    case Quantity::weight_panel:
        return POLYHEAD_WEIGHT_PANEL;
    case Quantity::widest_load:
        return 4;
    case Quantity::head_dim_v:
        return p.head_dim_v;
    case Quantity::all_keys: // a chunk longer than all keys is padding
        return p.seq_len_kv > 0 ? p.seq_len_kv + 31 : INT_MAX;
    case Quantity::tiles: {
        const Product *tiles = machine.core_product(p.dtype);
        return tiles && machine.some_have(*tiles) ? 1 : 0;
    }
    case Quantity::products:
        return products_refusal(p, machine).empty() ? 1 : 0;
    case Quantity::unlimited:
        break;
    }
    return INT_MAX;
}

// "the 16 lanes of the target", with or without the number.
std::string words_of(Quantity quantity, const std::string &number) {
    switch (quantity) {
    case Quantity::lanes:
        return "the " + number + "lanes of the target";
    case Quantity::warp:
        return "the " + number + "threads of a warp of the target";
    case Quantity::product_depth:
        return "the " + number + "keys of a product of a warp";
    case Quantity::weight_panel:
        return "the " + number + "columns of a weight panel";
    case Quantity::widest_load:
        return "the " + number + "elements of the widest load";
    default:
        return number;
    }
}

const char *knob_name(int Tiling::*value) {
    for (const Knob &knob : knobs()) {
        if (knob.value == value) {
            return knob.name;
        }
    }
    return "";
}

std::string rule_refusal(const Knob &knob, const Divisibility &rule, const Problem &p, const Tiling &t, const Machine &machine) {
    const int value = t.*knob.value, other = rule.knob ? t.*rule.knob : number_of(rule.of, p, machine);
    const bool kept = other == 0 || (rule.is_multiple ? value % other == 0 : other % value == 0);
    const std::string what =
        rule.knob ? knob_name(rule.knob) + (" " + std::to_string(other)) : words_of(rule.of, std::to_string(other) + " ");
    return kept ? ""
                : "tiling: " + std::string(knob.name) + " " + std::to_string(value) +
                      (rule.is_multiple ? " is not a multiple of " : " does not divide ") + what;
}

// "a multiple of the lanes of the target and of key_unroll"
std::string rules_text(const KnobUse &use) {
    std::string text;
    for (const Divisibility &rule : use.rules) {
        const std::string what = rule.knob ? knob_name(rule.knob) : words_of(rule.of, "");
        text += (text.empty() ? "" : ", ") + std::string(rule.is_multiple ? "a multiple of " : "divides ") + what;
    }
    return text;
}

std::string range_text(const KnobUse &use) {
    return std::to_string(use.least) + " to " + std::to_string(use.most);
}

} // namespace

const KnobUse *use_of(const Knob &knob, const Frame &frame, const Problem &p, const Machine &machine) {
    const auto found =
        std::find_if(knob.uses.begin(), knob.uses.end(), [&](const KnobUse &use) { return reads(frame, use.user, p, machine); });
    return found == knob.uses.end() ? nullptr : &*found;
}

void forget_unread(const Frame &frame, const Problem &p, const Machine &machine, Tiling *tiling) {
    for (const Knob &knob : knobs()) {
        tiling->*knob.value = use_of(knob, frame, p, machine) ? tiling->*knob.value : 0;
    }
}

std::string unread_knobs(const std::vector<FrameOnMachine> &on, const Problem &p, const Tiling &t) {
    std::string known, names, unread;
    for (const FrameOnMachine &at : on) {
        const std::string name = at.frame->name();
        if (names.find(name) == std::string::npos) {
            names += (names.empty() ? "" : " or ") + name;
        }
    }
    for (const Knob &knob : knobs()) {
        const auto read_there = [&](const FrameOnMachine &at) { return use_of(knob, *at.frame, p, at.machine) != nullptr; };
        if (std::any_of(on.begin(), on.end(), read_there)) {
            known += (known.empty() ? "" : ", ") + std::string(knob.name);
        } else if (t.*knob.value != 0 && unread.empty()) {
            unread = knob.name;
        }
    }
    return unread.empty() ? "" : "tiling: " + unread + " is not read by frame " + names + " for this problem, expected one of " + known;
}

std::string range_refusal(const Frame &frame, const Problem &p, const Tiling &t, const Machine &machine) {
    for (const Knob &knob : knobs()) {
        const KnobUse *use = use_of(knob, frame, p, machine);
        const int value = t.*knob.value;
        if (use && value != 0 && (value < use->least || value > use->most)) {
            return "tiling: " + std::string(knob.name) + " is " + std::to_string(value) + ", expected " + range_text(*use) + " in frame " +
                   frame.name();
        }
    }
    return "";
}

std::string knob_refusal(const Frame &frame, const Problem &p, const Tiling &t, const Machine &machine) {
    const std::string beyond = range_refusal(frame, p, t, machine);
    if (!beyond.empty()) {
        return beyond;
    }
    for (const Knob &knob : knobs()) {
        const KnobUse *use = use_of(knob, frame, p, machine);
        if (!use || t.*knob.value == 0) {
            continue;
        }
        for (const Divisibility &rule : use->rules) {
            const std::string refusal = rule_refusal(knob, rule, p, t, machine);
            if (!refusal.empty()) {
                return refusal;
            }
        }
    }
    return "";
}

std::vector<int> values_of(const KnobUse &use, const Problem &p, const Machine &machine, int default_value) {
    const int most = number_of(use.up_to, p, machine), unit = number_of(use.unit, p, machine);
    std::vector<int> values = {default_value};
    for (const int value : use.values) {
        values.push_back(value * unit);
    }
    for (int i = 2; use.also_divisors && i <= 24 && i <= most; i++) {
        if (most % i == 0) {
            values.push_back(i);
        }
    }
    const auto too_large = [&](int value) { return value > most && value != default_value; };
    values.erase(std::remove_if(values.begin(), values.end(), too_large), values.end());
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
}

std::string knobs_help() {
    std::string text = "Knobs of --tiling \"frame=NAME knob=value ...\":\n";
    for (const Knob &knob : knobs()) {
        text += "  " + std::string(knob.name) + ": " + knob.meaning + "\n";
        for (const KnobUse &use : knob.uses) {
            const std::string rules = rules_text(use);
            text += "      " + name_of(use.user) + ": " + range_text(use) + (rules.empty() ? "" : ", " + rules) + "\n";
        }
    }
    return text;
}

std::string knobs_markdown() {
    std::string text = "| knob | frame | range | must be | meaning |\n|---|---|---|---|---|\n";
    for (const Knob &knob : knobs()) {
        const char *meaning = knob.meaning;
        std::string name = "`" + std::string(knob.name) + "`";
        for (const KnobUse &use : knob.uses) {
            const std::string rules = rules_text(use);
            text += "| " + name + " | " + name_of(use.user) + " | " + range_text(use) + " | " + (rules.empty() ? "" : rules + " ") + "| " +
                    meaning + (*meaning ? " |\n" : "|\n");
            name = meaning = "";
        }
    }
    return text;
}

} // namespace polyhead::gen

// Checks calls with packed tokens: where their sequences begin, and whether the kernel can compute them one by one.
#include <cstring>

#include "../contract/expression_text.h"
#include "call_tensors.h"
#include "status.h"
#include "tensor_rules.h"
#include "validate_parts.h"

namespace polyhead::runtime {
namespace {

// From 0 to the extent of the packed dimension, and never falling.
bool check_begins(const char *name, const polyhead_tensor &tensor, const char *packed, int64_t total, polyhead_status *status) noexcept {
    const int64_t last = tensor.shape[0] - 1;
    int32_t before = 0;
    for (int64_t i = 0; i <= last; ++i) {
        const int32_t value = integer_at(tensor, i);
        if (i == 0 && value != 0) {
            return refuse(status, POLYHEAD_BAD_VALUE, "%s: value %d at index 0, expected 0", name, value);
        }
        if (value < before) {
            return refuse(status, POLYHEAD_BAD_VALUE, "%s: value %d at index %lld, expected at least %d, the value before it", name, value,
                          static_cast<long long>(i), before);
        }
        before = value;
    }
    return before == total ||
           refuse(status, POLYHEAD_BAD_VALUE, "%s: value %d at index %lld, the last, expected %lld, the extent of dimension 2 of %s", name,
                  before, static_cast<long long>(last), static_cast<long long>(total), packed);
}

bool of_name(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Reads an expression for uses of b. A part of a call begins with batch row 0 of its own tensors. So b is right as the whole index of a
// dimension that is declared as b, because that tensor is cut with the batch, and nowhere else.
class BatchRowUses {
public:
    explicit BatchRowUses(const polyhead_kernel &kernel) noexcept : kernel_(kernel), text_(kernel.problem.expression) {}

    bool only_as_index() noexcept {
        char word[most_name] = "";
        size_t length = 0;
        bool declaration = false;
        for (char c = text_.next(), before = ';';; c = text_.next()) {
            if (of_name(c)) {
                if (length == 0) {
                    begins_behind_ = before;
                }
                word[length] = c;
                length += length + 1 < most_name ? 1 : 0;
            } else {
                word[length] = 0;
                declaration = (declaration || std::strcmp(word, "tensor") == 0) && c != ';' && c != 0;
                if (std::strcmp(word, "b") == 0 && !declaration && !is_index(c)) {
                    return false;
                }
                follow(word, c);
                length = 0;
            }
            if (c == 0) {
                return true;
            }
            before = c;
        }
    }

private:
    static constexpr size_t most_name = 64;
    static constexpr int most_depth = 64;

    // Whether b, with this character behind it, is the whole index of a dimension that is declared as b.
    bool is_index(char behind) const noexcept {
        if ((behind != ',' && behind != ']') || (begins_behind_ != '[' && begins_behind_ != ',') || depth_ < 1 || depth_ > most_depth) {
            return false;
        }
        const Bracket &bracket = brackets_[depth_ - 1];
        return bracket.tensor && bracket.dimension < bracket.tensor->rank &&
               bracket.tensor->extents[bracket.dimension] == POLYHEAD_EXTENT_B;
    }

    const polyhead_declaration *declared(const char *name) const noexcept {
        for (int32_t i = 0; i < kernel_.num_declarations; ++i) {
            if (std::strcmp(kernel_.declarations[i].name, name) == 0) {
                return &kernel_.declarations[i];
            }
        }
        return nullptr;
    }

    void follow(const char *word, char c) noexcept {
        if (c == '[' || c == '(') {
            if (depth_ < most_depth) {
                brackets_[depth_] = {c == '[' ? declared(word) : nullptr, 0};
            }
            ++depth_;
        } else if ((c == ']' || c == ')') && depth_ > 0) {
            --depth_;
        } else if (c == ',' && depth_ > 0 && depth_ <= most_depth) {
            ++brackets_[depth_ - 1].dimension;
        }
    }

    struct Bracket {
        const polyhead_declaration *tensor; // indexed; null: another bracket
        int dimension;
    };

    const polyhead_kernel &kernel_;
    ExpressionText text_;
    Bracket brackets_[most_depth];
    int depth_ = 0;
    char begins_behind_ = ';'; // what stands before the present word
};

} // namespace

bool batch_row_only_as_index(const polyhead_kernel &kernel) noexcept {
    return BatchRowUses(kernel).only_as_index();
}

// On the host also for calls on a device: the sequences are found before anything runs.
bool check_sequences(const polyhead_args &args, int64_t *sequences, polyhead_status *status) noexcept {
    const polyhead_tensor &q = args.cu_seqlens_q, &kv = args.cu_seqlens_kv;
    if (!absent(q)) {
        if (!check_host_tensor({"cu_seqlens_q", &q, POLYHEAD_I32, Role::lengths, 1, {}}, status)) {
            return false;
        }
        if (q.shape[0] < 1) {
            return refuse(status, POLYHEAD_WRONG_SHAPE, "cu_seqlens_q: extent 0 of dimension 0, expected at least 1");
        }
        *sequences = q.shape[0] - 1;
    }
    const Extent begins{*sequences + 1, absent(q) ? nullptr : "cu_seqlens_q"};
    return absent(kv) || check_host_tensor({"cu_seqlens_kv", &kv, POLYHEAD_I32, Role::lengths, 1, {begins}}, status);
}

bool check_ragged(const polyhead_kernel &kernel, const polyhead_args &args, const CallShape &shape, polyhead_status *status) noexcept {
    const polyhead_problem &p = kernel.problem;
    const char *given = shape.packed_q ? "cu_seqlens_q" : "cu_seqlens_kv";
    if (p.scores != POLYHEAD_NO_SCORES || p.weights_mean) {
        return refuse(status, POLYHEAD_UNSUPPORTED, "%s: given, expected none, because the kernel has an output over pairs (%s)", given,
                      p.weights_mean ? "weights_mean" : "scores");
    }
    if (!batch_row_only_as_index(kernel)) {
        return refuse(status, POLYHEAD_UNSUPPORTED,
                      "%s: given, expected none, because the kernel's expression uses b otherwise than as the index of a dimension b",
                      given);
    }
    if (shape.nothing_to_do()) { // then numbers are read by nobody
        return true;
    }
    return (!shape.packed_q || check_begins("cu_seqlens_q", args.cu_seqlens_q, "query", shape.seq_len_q, status)) &&
           (!shape.packed_kv || check_begins("cu_seqlens_kv", args.cu_seqlens_kv, "key", shape.seq_len_kv, status));
}

} // namespace polyhead::runtime

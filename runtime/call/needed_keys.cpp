// How many keys a kernel has to be shown.
#include "needed_keys.h"

#include <algorithm>

#include "../../contract/tensors.h"
#include "../contract.h"
#include "../rules/tensor_rules.h"

namespace polyhead::runtime {
namespace {

int32_t span(const polyhead_args &args, int32_t given) noexcept {
    return args.has_window && given >= 0 ? std::min(given, window_unbounded) : window_unbounded;
}

// Something of the call has T_kv itself: an output, a length that was built in, a user's expression.
bool keeps_all_keys(const KernelTable &kernel) noexcept {
    const polyhead_problem &p = kernel.problem;
    return !computes_out(p) || p.seq_len_kv > 0 || (attends_itself(p) && !p.cache) || p.scores != POLYHEAD_NO_SCORES || p.weights_mean ||
           (kernel.expression_facts & POLYHEAD_EXPRESSION_KEY_LENGTH) != 0;
}

// Query q sees no key after q, and nothing else of the call asks how many keys there are.
bool sees_its_own_position(const polyhead_problem &p, const polyhead_args &args) noexcept {
    return p.causal != POLYHEAD_NOT_CAUSAL && !counts_from_end(p, args) && absent(args.position_offsets) &&
           !(p.expression && p.expression[0]);
}

} // namespace

int64_t needed_keys(const KernelTable &kernel, const polyhead_args &args, const CallShape &s) noexcept {
    const polyhead_problem &p = kernel.problem;
    const polyhead_tensor &lengths = p.cache ? args.cache_lengths : args.kv_lengths;
    const int64_t added = p.cache ? s.seq_len_q : 0; // to the keys that were valid before
    if (keeps_all_keys(kernel) || (p.cache && args.device)) {
        return s.seq_len_kv;
    }
    int64_t longest = 1;
    if (absent(lengths) || lengths.device) {
        longest = absent(lengths) && sees_its_own_position(p, args) ? std::max<int64_t>(s.seq_len_q, 1) : s.seq_len_kv;
    } else {
        for (int64_t b = 0; b < s.batch; ++b) {
            longest = std::max<int64_t>(longest, integer_at(lengths, b) + added);
        }
    }
    const int64_t block = std::max(p.page_size, 1);
    return std::min((longest + block - 1) / block * block, s.seq_len_kv); // another thread may change the lengths meanwhile
}

int64_t keys_in_windows(const polyhead_problem &p, const polyhead_args &args, const CallShape &s) noexcept {
    return s.seq_len_q + window_left_of(args) + window_right_of(p, args);
}

int32_t window_left_of(const polyhead_args &args) noexcept {
    return span(args, args.window_left);
}

int32_t window_right_of(const polyhead_problem &p, const polyhead_args &args) noexcept {
    return p.causal != POLYHEAD_NOT_CAUSAL ? 0 : span(args, args.window_right);
}

} // namespace polyhead::runtime

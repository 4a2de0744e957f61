// Reads the arguments of a call and runs it.
#include "call.h"

#include <algorithm>
#include <limits>

namespace polyhead::python {
namespace {

// Visits the tensors that a kernel takes, those of every call first: visit(row).
template <class Visit> void for_each_tensor(const polyhead_problem &p, Visit visit) {
    constexpr contract::TensorSet always = contract::rows_where([](const contract::TensorRow &row) { return row.feature == nullptr; });
    const contract::TensorSet taken = contract::taken_by(p);
    for (const contract::TensorSet &rows : {contract::operand_rows, contract::result_rows & always, contract::host_rows,
                                            contract::option_rows, contract::result_rows & ~always}) {
        for (const contract::TensorRow &row : taken &rows) {
            visit(row);
        }
    }
}

std::string shape_text(const polyhead_tensor &tensor) {
    std::string text = "[";
    for (int i = 0; i < tensor.rank; ++i) {
        text += (i > 0 ? ", " : "") + std::to_string(tensor.shape[i]);
    }
    return text + "]";
}

template <class T> T number(const std::string &name, nb::handle value, const char *expected) {
    T found{};
    if (!nb::try_cast(value, found)) {
        throw wrong_type(name + ": found " + nb::cast<std::string>(nb::str(value.type().attr("__name__"))) + ", expected " + expected);
    }
    return found;
}

int32_t alignment_named(const std::string &name) {
    if (name == "top_left" || name == "bottom_right") {
        return name == "top_left" ? POLYHEAD_TOP_LEFT : POLYHEAD_BOTTOM_RIGHT;
    }
    throw Refusal(POLYHEAD_BAD_VALUE, "alignment: found '" + name + "', expected top_left or bottom_right");
}

int32_t window_side(nb::handle value) {
    const auto side = number<int64_t>("window", value, "a pair of integers");
    return side < std::numeric_limits<int32_t>::min() || side > std::numeric_limits<int32_t>::max() ? -1 : int32_t(side);
}

} // namespace

Layout layout_named(const std::string &name) {
    if (name == "bhsd" || name == "bshd") {
        return name == "bhsd" ? Layout::bhsd : Layout::bshd;
    }
    if (name == "bsd") {
        return Layout::bsd;
    }
    throw Refusal(POLYHEAD_BAD_VALUE, "layout: found '" + name + "', expected bhsd, bshd or bsd");
}

CallArguments::CallArguments(const LoadedKernel &kernel, nb::dict arguments, DevicePointer device, Layout layout)
    : table_(kernel.table()), device_(std::move(device)), layout_(layout) {
    args_ = polyhead_args_of(table_.problem.op);
    args_.device = device_ ? device_->raw() : nullptr;
    expression_tensors_.resize(size_t(table_.num_declarations));
    expression_gradients_.resize(size_t(std::count_if(table_.declarations, table_.declarations + table_.num_declarations,
                                                      [](const polyhead_declaration &declared) { return declared.gradient; })));
    for (const auto &[key, value] : arguments) {
        const auto name = nb::cast<std::string>(key);
        const bool gradients = name == "gradients";
        if ((name == "tensors" || gradients) && nb::isinstance<nb::dict>(value)) {
            for (const auto &[tensor, array] : nb::cast<nb::dict>(value)) {
                const auto declared = nb::cast<std::string>(tensor);
                if (!array.is_none() && !(gradients ? read_gradient(declared, array) : read_expression_tensor(declared, array))) {
                    unexpected(declared);
                }
            }
        } else if (!value.is_none() && !read_number(name, value) && !read_tensor(name, value)) {
            unexpected(name);
        }
    }
    args_.expression_tensors = expression_tensors_.data();
    args_.num_expression_tensors = table_.num_declarations;
    args_.expression_gradients = expression_gradients_.data();
    args_.num_expression_gradients = int32_t(expression_gradients_.size());
}

bool CallArguments::read_number(const std::string &name, nb::handle value) {
    if (name == "weights" && (contract::has_weights(table_.problem) || nb::isinstance<PackedWeights>(value))) {
        args_.weights = number<const PackedWeights *>(name, value, "what pack() returned")->weights.raw();
        weights_ = nb::borrow(value);
        return true;
    }
    return contract::attends(table_.problem) && read_attention_number(name, value);
}

bool CallArguments::read_attention_number(const std::string &name, nb::handle value) {
    if (name == "softmax_scale") {
        args_.has_softmax_scale = 1;
        args_.softmax_scale = number<float>(name, value, "a number");
    } else if (name == "alignment") {
        args_.alignment = alignment_named(number<std::string>(name, value, "top_left or bottom_right"));
    } else if (name == "window") {
        const auto pair = number<nb::sequence>(name, value, "a pair of integers");
        if (nb::len(pair) != 2) {
            throw wrong_type("window: found " + std::to_string(nb::len(pair)) + " values, expected a pair of integers");
        }
        args_.has_window = 1;
        args_.window_left = window_side(pair[0]);
        args_.window_right = window_side(pair[1]);
    } else if (name == "dropout_seed" && table_.problem.dropout) {
        args_.dropout_seed = number<uint64_t>(name, value, "a whole number from 0 to 2^64 - 1");
    } else if (name == "dropout_offset" && table_.problem.dropout) {
        args_.dropout_offset = number<uint32_t>(name, value, "a whole number from 0 to 2^32 - 1");
    } else {
        for (const contract::NumberRow &row : contract::numbers) {
            if (row.given && name == row.name) {
                args_.*row.given = number<float>(name, value, "a number");
                return true;
            }
        }
        return false;
    }
    return true;
}

bool CallArguments::read_tensor(const std::string &name, nb::handle value) {
    bool found = false;
    for_each_tensor(table_.problem, [&](const contract::TensorRow &row) {
        if (found || name != row.name) {
            return;
        }
        found = true;
        Array &array = arrays_.emplace_back(name, value, row.place == contract::Place::result ? Access::write : Access::read);
        array.place(device_.get());
        // A copy of a cache in another type would not have what the cache holds, or be made in every call: the runtime refuses that type.
        if (row.tensor != &polyhead_args::key_cache && row.tensor != &polyhead_args::value_cache) {
            array.want(Element(row.dtype(table_.problem)));
        }
        args_.*row.tensor = array.tensor();
        read_heads(&array, row);
    });
    return found || read_expression_tensor(name, value);
}

bool CallArguments::read_expression_tensor(const std::string &name, nb::handle value) {
    for (int32_t i = 0; i < table_.num_declarations; ++i) {
        if (name == table_.declarations[i].name) {
            Array &array = arrays_.emplace_back(name, value, Access::read);
            array.place(device_.get());
            array.want(Element(table_.declarations[i].dtype));
            expression_tensors_[size_t(i)] = array.tensor();
            return true;
        }
    }
    return false;
}

// Of the declared tensor of this name.
bool CallArguments::read_gradient(const std::string &name, nb::handle value) {
    size_t place = 0;
    for (int32_t i = 0; i < table_.num_declarations; ++i) {
        const polyhead_declaration &declared = table_.declarations[i];
        if (declared.gradient && name == declared.name) {
            Array &array = arrays_.emplace_back(declared.gradient, value, Access::write);
            array.place(device_.get());
            array.want(Element(POLYHEAD_F32));
            expression_gradients_[place] = array.tensor();
            return true;
        }
        place += declared.gradient ? 1 : 0;
    }
    return false;
}

// Layouts are views of one kernel: of tensors with heads and entries, [B,H,T,d].
void CallArguments::read_heads(Array *array, const contract::TensorRow &row) {
    const polyhead_problem &p = table_.problem;
    const int32_t heads_extent = row.extents[1];
    const bool of_keys = heads_extent == contract::extent_kv_heads, of_queries = heads_extent == POLYHEAD_EXTENT_H;
    const bool has_heads = row.rank == 4 && (of_keys || (of_queries && row.extents[3] != POLYHEAD_EXTENT_KV));
    if (layout_ == Layout::bhsd || !has_heads) {
        return;
    }
    TensorView view;
    static_cast<polyhead_tensor &>(view) = args_.*row.tensor;
    // Free heads: as many as the width holds.
    const int64_t width = contract::fixed_extent(row.extents[3], p);
    const bool free = contract::free_heads(p) && view.rank == 3;
    const int64_t heads = free ? view.shape[2] / width : of_keys ? p.num_kv_heads : p.num_heads;
    const TensorView seen = layout_ == Layout::bshd ? from_bshd(view) : from_bsd(view, heads);
    if (seen.data == nullptr && view.data != nullptr) {
        const std::string expected =
            layout_ == Layout::bshd ? "[batch, seq_len, heads, head_dim]" : "[batch, seq_len, " + std::to_string(heads) + " * head_dim]";
        throw Refusal(POLYHEAD_WRONG_SHAPE, array->name() + ": found " + shape_text(view) + ", expected " + expected);
    }
    args_.*row.tensor = seen;
}

void CallArguments::unexpected(const std::string &name) const {
    std::string names;
    for (const std::string &known : tensor_names(table_)) {
        names += (names.empty() ? "" : ", ") + known;
    }
    throw wrong_type("unexpected argument '" + name + "'; the tensors of this kernel are " + names);
}

std::vector<std::string> CallArguments::tensor_names(const polyhead_kernel &table) {
    std::vector<std::string> names;
    for_each_tensor(table.problem, [&](const contract::TensorRow &row) { names.emplace_back(row.name); });
    for (int32_t i = 0; i < table.num_declarations; ++i) {
        names.emplace_back(table.declarations[i].name);
    }
    return names;
}

std::vector<std::string> CallArguments::names(const LoadedKernel &kernel) {
    const polyhead_problem &p = kernel.table().problem;
    std::vector<std::string> names = tensor_names(kernel.table());
    const auto add = [&names](bool exists, const char *name) {
        if (exists) {
            names.emplace_back(name);
        }
    };
    add(contract::has_weights(p), "weights");
    add(contract::attends(p), "softmax_scale");
    add(contract::attends(p) && contract::knows_positions(p), "alignment");
    add(p.window != 0, "window");
    add(p.dropout != 0, "dropout_seed");
    add(p.dropout != 0, "dropout_offset");
    for (const contract::NumberRow &row : contract::numbers) {
        add(row.given && takes(p, row), row.name);
    }
    return names;
}

void CallArguments::check_converted() const {
    for (const Array &output : arrays_) {
        if (!output.is_output()) {
            continue;
        }
        output.check_no_overlap();
        for (const Array &other : arrays_) {
            // Two outputs are compared both ways.
            if (&other != &output && output.shares_unseen_memory(other)) {
                throw Refusal(POLYHEAD_ALIASED, output.name() + ": shares memory with " + other.name() + ", expected memory of its own");
            }
        }
    }
}

void CallArguments::fill() {
    check_converted();
    for (Array &array : arrays_) {
        array.fill();
    }
}

void CallArguments::run(const polyhead::Plan *plan) {
    fill();
    args_.plan = plan ? plan->raw() : nullptr;
    raise_unless_ok(polyhead_run(&table_, &args_));
    for (Array &array : arrays_) {
        array.give_back();
    }
}

std::string CallArguments::explain() {
    fill();
    constexpr size_t bytes_per_variant = 1024;
    std::string text(bytes_per_variant * (size_t(table_.num_variants) + 1), '\0');
    raise_unless_ok(polyhead_explain(&table_, &args_, text.data(), text.size()));
    text.resize(text.find('\0'));
    return text;
}

int64_t CallArguments::scratch_bytes() {
    fill();
    polyhead_status status{};
    const int64_t bytes = polyhead_scratch_bytes(&table_, &args_, &status);
    raise_unless_ok(status);
    return bytes;
}

std::unique_ptr<polyhead::Plan> CallArguments::plan() {
    fill();
    polyhead_plan *plan = nullptr;
    raise_unless_ok(polyhead_make_plan(&table_, &args_, &plan));
    return std::make_unique<polyhead::Plan>(plan);
}

} // namespace polyhead::python

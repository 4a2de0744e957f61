// Functions around kernels: appending to a cache, rotation by position, merging of partial results.
#include <algorithm>
#include <deque>

#include <nanobind/stl/vector.h>
#include <polyhead/cache.h>

#include "../../runtime/memory/stored.h"
#include "call.h"
#include "without_lock.h"

namespace polyhead::python {
namespace {

// The arrays of one call. None is absent.
class Arrays {
public:
    explicit Arrays(Layout layout) : layout_(layout) {}

    // Read or written as it is: its type must be one of the runtime.
    polyhead_tensor as_it_is(const char *name, nb::handle object, Access access) {
        return object.is_none() ? polyhead_tensor{} : add(name, object, access, [](Array &array) { return array.element(); });
    }
    // Of this type, or converted to it.
    polyhead_tensor of_type(const char *name, nb::handle object, Element element) {
        return object.is_none() ? polyhead_tensor{} : add(name, object, Access::read, [element](Array &) { return element; });
    }
    // Floats that the runtime takes as they are stored, or as f32.
    polyhead_tensor stored_or_f32(const char *name, nb::handle object, int32_t stored) {
        const auto type = [stored](Array &array) {
            const Element found = array.element();
            const bool any_float = stored == POLYHEAD_I8 && runtime::stores_floats(int32_t(found));
            return int32_t(found) == stored || any_float ? found : Element::f32;
        };
        return object.is_none() ? polyhead_tensor{} : add(name, object, Access::read, type);
    }
    // Floats of any type that the runtime stores, others as f32.
    polyhead_tensor floats(const char *name, nb::handle object) { return stored_or_f32(name, object, POLYHEAD_I8); }
    // A tensor with heads: [B,H,T,d] in any layout.
    polyhead_tensor with_heads(const polyhead_tensor &tensor) const {
        TensorView view;
        static_cast<polyhead_tensor &>(view) = tensor;
        return layout_ == Layout::bhsd || tensor.rank != 4 ? tensor : from_bshd(view);
    }
    // Without the interpreter's lock.
    void fill() {
        for (Array &array : arrays_) {
            array.fill();
        }
    }

private:
    template <class Type> polyhead_tensor add(const char *name, nb::handle object, Access access, const Type &type) {
        Array &array = arrays_.emplace_back(name, object, access);
        array.place(nullptr);
        array.want(type(array));
        return array.tensor();
    }

    Layout layout_;
    std::deque<Array> arrays_;
};

nb::object get(const nb::dict &arguments, const char *name) {
    return arguments.contains(name) ? nb::object(arguments[name]) : nb::none();
}

polyhead_rotation rotation_of(Arrays *arrays, const nb::dict &arguments) {
    polyhead_rotation rotation{};
    rotation.cos = arrays->of_type("rope_cos", get(arguments, "rope_cos"), Element::f32);
    rotation.sin = arrays->of_type("rope_sin", get(arguments, "rope_sin"), Element::f32);
    rotation.positions = arrays->of_type("positions", get(arguments, "positions"), Element::i32);
    rotation.rope = nb::cast<int32_t>(arguments["rope"]);
    return rotation;
}

polyhead_sections sections_of(const nb::dict &arguments) {
    const auto pairs = nb::cast<std::vector<int32_t>>(arguments["sections"]); // the package gives three numbers
    return {nb::cast<int32_t>(arguments["rope_sections"]), pairs[0], pairs[1], pairs[2]};
}

polyhead_cache cache_of(Arrays *arrays, const nb::dict &arguments) {
    const polyhead_tensor key = arrays->as_it_is("cache_key", get(arguments, "cache_key"), Access::write),
                          value = arrays->as_it_is("cache_value", get(arguments, "cache_value"), Access::write),
                          table = arrays->of_type("page_table", get(arguments, "page_table"), Element::i32);
    polyhead_cache cache = polyhead_cache_of(arrays->with_heads(key), arrays->with_heads(value), table);
    cache.key_scales = arrays->with_heads(arrays->as_it_is("key_scales", get(arguments, "key_scales"), Access::write));
    cache.value_scales = arrays->with_heads(arrays->as_it_is("value_scales", get(arguments, "value_scales"), Access::write));
    return cache;
}

void append(const nb::dict &arguments, const std::string &layout) {
    Arrays arrays(layout_named(layout));
    const polyhead_cache cache = cache_of(&arrays, arguments);
    polyhead_new_keys keys = polyhead_new_keys_of();
    keys.key = arrays.with_heads(arrays.stored_or_f32("key", get(arguments, "key"), cache.key.dtype));
    keys.value = arrays.with_heads(arrays.stored_or_f32("value", get(arguments, "value"), cache.key.dtype));
    keys.lengths = arrays.of_type("lengths", get(arguments, "lengths"), Element::i32);
    keys.counts = arrays.of_type("counts", get(arguments, "counts"), Element::i32);
    keys.rotation = rotation_of(&arrays, arguments);
    keys.sections = sections_of(arguments);
    if (const nb::object window_left = get(arguments, "window_left"); !window_left.is_none()) {
        keys.has_window = 1;
        keys.window_left = nb::cast<int32_t>(window_left);
    }
    keys.cu_seqlens = arrays.of_type("cu_seqlens", get(arguments, "cu_seqlens"), Element::i32);
    keys.key_norm = nb::cast<int32_t>(arguments["key_norm"]);
    keys.key_norm_weight = arrays.floats("key_norm_weight", get(arguments, "key_norm_weight"));
    keys.key_norm_bias = arrays.floats("key_norm_bias", get(arguments, "key_norm_bias"));
    keys.norm_epsilon = nb::cast<float>(arguments["norm_epsilon"]);
    keys.value_norm = nb::cast<bool>(arguments["value_norm"]);
    const WithoutLock others_may_run;
    arrays.fill();
    raise_unless_ok(polyhead_append(&cache, &keys));
}

void copy_page(const nb::dict &arguments, int32_t from, int32_t to) {
    Arrays arrays(Layout::bhsd);
    const polyhead_cache cache = cache_of(&arrays, arguments);
    const WithoutLock others_may_run;
    raise_unless_ok(polyhead_copy_page(&cache, from, to));
}

void rotate(const nb::dict &arguments, const std::string &layout) {
    Arrays arrays(layout_named(layout));
    const polyhead_tensor input = arrays.with_heads(arrays.as_it_is("input", get(arguments, "input"), Access::read)),
                          out = arrays.with_heads(arrays.as_it_is("out", get(arguments, "out"), Access::write));
    const polyhead_rotation rotation = rotation_of(&arrays, arguments);
    const polyhead_sections sections = sections_of(arguments);
    const WithoutLock others_may_run;
    arrays.fill();
    raise_unless_ok(polyhead_rotate_sections_in(nullptr, &input, &rotation, &sections, &out));
}

void normalize(const nb::dict &arguments) {
    Arrays arrays(Layout::bhsd); // rows are rows in any layout
    const polyhead_tensor input = arrays.as_it_is("input", get(arguments, "input"), Access::read),
                          out = arrays.as_it_is("out", get(arguments, "out"), Access::write);
    polyhead_head_norm norm = polyhead_head_norm_of(nb::cast<int32_t>(arguments["norm"]), nb::cast<float>(arguments["epsilon"]));
    norm.weight = arrays.floats("weight", get(arguments, "weight"));
    norm.bias = arrays.floats("bias", get(arguments, "bias"));
    const WithoutLock others_may_run;
    arrays.fill();
    raise_unless_ok(polyhead_normalize(&input, &norm, &out));
}

void merge_states(const nb::list &parts, const nb::object &sinks_given, const nb::object &out_given, const nb::object &lse_given) {
    Arrays arrays(Layout::bhsd);
    const polyhead_tensor out = arrays.as_it_is("out", out_given, Access::write), lse = arrays.as_it_is("lse", lse_given, Access::write),
                          sinks = arrays.of_type("sinks", sinks_given, Element::f32);
    std::vector<polyhead_state> states;
    for (const auto &part : parts) {
        const auto pair = nb::cast<nb::tuple>(part); // the package gives pairs
        states.push_back(
            {arrays.as_it_is("out of a part", pair[0], Access::read), arrays.as_it_is("lse of a part", pair[1], Access::read)});
    }
    const WithoutLock others_may_run;
    arrays.fill();
    raise_unless_ok(polyhead_merge_states(states.data(), int32_t(states.size()), sinks.rank == 0 ? nullptr : &sinks, &out, &lse));
}

// A pool of pages; its calls are short and keep the interpreter's lock.
class Pages {
public:
    explicit Pages(int32_t pages) : all_(std::max(pages, 0)) { check(PagePool::make(pages, &pool_)); }
    std::vector<int32_t> take(nb::handle given) {
        const int32_t count = whole_number("count", given);
        // More than there are is refused before a page is written.
        std::vector<int32_t> pages(size_t(std::clamp(count, 0, all_)) + (count > 0));
        check(pool_.take(count, pages.data()));
        pages.resize(size_t(count));
        return pages;
    }
    void share(nb::handle given) {
        const std::vector<int32_t> pages = whole_numbers("pages", given);
        check(pool_.share(int32_t(pages.size()), pages.data()));
    }
    void release(nb::handle given) {
        const std::vector<int32_t> pages = whole_numbers("pages", given);
        check(pool_.release(int32_t(pages.size()), pages.data()));
    }
    int32_t free() const { return pool_.free(); }
    int32_t users(nb::handle page) const { return pool_.users(whole_number("page", page)); }

private:
    static void check(const Status &status) {
        if (!status.ok()) {
            throw Refusal(status.code(), status.message());
        }
    }
    const int32_t all_;
    PagePool pool_;
};

} // namespace

void bind_cache(nb::module_ &module) {
    using namespace nb::literals;
    nb::class_<Pages>(module, "PagePool", "Which pages of a cache are used, and by how many sequences. It has no memory for keys.")
        .def(
            "__init__", [](Pages *self, nb::handle pages) { new (self) Pages(whole_number("pages", pages)); }, "pages"_a)
        .def("take", &Pages::take, "count"_a, "Pages that nobody uses; all of them or none. Each then has one user.")
        .def("share", &Pages::share, "pages"_a, "One user more for each of these pages, which are in use.")
        .def("release", &Pages::release, "pages"_a, "One user less for each of these pages; a page without users is free again.")
        .def("users", &Pages::users, "page"_a, "How many use this page; 0: it is free.")
        .def_prop_ro("free", &Pages::free, "The number of pages that nobody uses.");
    module.def("append", append, "arguments"_a, "layout"_a);
    module.def("copy_page", copy_page, "arguments"_a, "source"_a, "target"_a);
    module.def("rotate", rotate, "arguments"_a, "layout"_a);
    module.def("normalize", normalize, "arguments"_a);
    module.def("merge_states", merge_states, "parts"_a, "sinks"_a.none(), "out"_a, "lse"_a);
}

} // namespace polyhead::python

// A call that was checked before. Included by polyhead.h.
#ifndef POLYHEAD_PLAN_H
#define POLYHEAD_PLAN_H

#include <utility>

#include <polyhead/c_api.h>

namespace polyhead {

// Owns a plan (polyhead_plan). Movable; threads may use one at the same time. Made by Kernel::plan(); args.plan uses it.
class Plan {
public:
    Plan() noexcept = default;
    explicit Plan(polyhead_plan *owned) noexcept : raw_(owned) {}
    ~Plan() { polyhead_free_plan(raw_); }
    Plan(Plan &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    Plan &operator=(Plan &&other) noexcept {
        std::swap(raw_, other.raw_);
        return *this;
    }
    Plan(const Plan &) = delete;
    Plan &operator=(const Plan &) = delete;
    const polyhead_plan *raw() const noexcept { return raw_; } // null: none

private:
    friend class Kernel;
    polyhead_plan *raw_ = nullptr;
};

} // namespace polyhead
#endif

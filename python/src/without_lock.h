// Gives the interpreter's lock away while C++ works or waits, also when the interpreter ends meanwhile.
#pragma once

#include <cxxabi.h>
#include <optional>
#include <unistd.h>

#include <nanobind/nanobind.h>

namespace polyhead::python {

// Other Python threads run while this object exists. A thread that holds the lock makes and destroys it.
class WithoutLock {
public:
    WithoutLock() noexcept : state_(PyEval_SaveThread()) {}
    ~WithoutLock() { restore(state_); }
    WithoutLock(const WithoutLock &) = delete;
    WithoutLock &operator=(const WithoutLock &) = delete;

private:
    // UBSan would report the reference that is caught: it has no object in C++.
    [[gnu::noinline, gnu::no_sanitize("undefined")]] static void restore(PyThreadState *state) {
        try {
            PyEval_RestoreThread(state);
        } catch (abi::__forced_unwind &) {
            // The interpreter is ending and ends this daemon thread, by unwinding its stack: that would pass functions that may not throw
            // and abort the process. It waits here until the process ends, as in Python 3.14.
            for (;;) {
                ::pause();
            }
        }
    }

    PyThreadState *state_;
};

// A thread without the lock holds it while this object exists.
class WithLock {
public:
    WithLock() noexcept : state_(acquired()) {}
    ~WithLock() { PyGILState_Release(state_); }
    WithLock(const WithLock &) = delete;
    WithLock &operator=(const WithLock &) = delete;

private:
    static PyGILState_STATE acquired() noexcept {
        try {
            return PyGILState_Ensure();
        } catch (abi::__forced_unwind &) { // as above
            for (;;) {
                ::pause();
            }
        }
    }
    PyGILState_STATE state_;
};

// The same for destructors, which other threads may run too.
class WithoutLockIfHeld {
public:
    WithoutLockIfHeld() noexcept {
        if (PyGILState_Check()) {
            without_.emplace();
        }
    }

private:
    std::optional<WithoutLock> without_;
};

} // namespace polyhead::python

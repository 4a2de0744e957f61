// Expressions of the tests as functions of a point, in both types of numbers.
#ifndef POLYHEAD_INSTRUMENTS_POINT_FUNCTIONS_H
#define POLYHEAD_INSTRUMENTS_POINT_FUNCTIONS_H

#include "expressions.h"

// One text serves both types of numbers.
#define POLYHEAD_OF_POINT(...)                                                                                                             \
    []([[maybe_unused]] const ExpressionPoint<double> &at) -> double {                                                                     \
        using Real [[maybe_unused]] = double;                                                                                              \
        __VA_ARGS__                                                                                                                        \
    },                                                                                                                                     \
        []([[maybe_unused]] const ExpressionPoint<float> &at) -> float {                                                                   \
            using Real [[maybe_unused]] = float;                                                                                           \
            __VA_ARGS__                                                                                                                    \
        }

#endif

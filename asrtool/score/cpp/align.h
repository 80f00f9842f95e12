// As align.py: the alignment of least cost, and the way back along it.

#pragma once

#include <algorithm>
#include <cfloat>
#include <limits>

#include "network.h"

namespace hub5 {

struct Move {
    char kind;              // C, S, D or I
    const Word *ref, *hyp;  // null for none
};

static_assert(FLT_EVAL_METHOD == 0, "sums of 32 bits, whose rounding decides between paths of equal cost");

inline float cost_of(const Word& ref, const Word& hyp) {
    if (ref.null) return hyp.null ? 1.0f : 4.0f;
    if (ref.number == hyp.number) return 0.0f;
    return (ref.fragment || hyp.fragment) && is_same(ref, hyp) ? 0.0f : 4.0f;
}

class Search {
   public:
    Search(const Network& ref, const Network& hyp, vector<float>& room)
        : ref_(ref), hyp_(hyp), width_(hyp.words.size()), table_(room) {
        table_.resize((ref.words.size() + 1) * width_);  // behind the last row is one to work in
        for (size_t a = 0; a < ref.words.size(); ++a) fill(a, row_above(a));
    }

    vector<Move> trace() const {
        vector<Move> moves;
        size_t cell = first_least(ref_.ends, hyp_.ends);
        while (cell) {
            const size_t a = cell / width_, b = cell % width_;
            const Word &ref = *ref_.words[a], &hyp = *hyp_.words[b];
            size_t from = 0;
            if (a && b && leads(from = before(a, b, true, true), cost_of(ref, hyp), cell)) {
                moves.push_back({is_same(ref, hyp) ? 'C' : 'S', &ref, &hyp});
            } else if (b && leads(from = before(a, b, false, true), hyp.gap, cell)) {
                if (!hyp.null) moves.push_back({hyp.optional ? 'C' : 'I', nullptr, &hyp});
            } else {
                from = before(a, b, true, false);
                if (!ref.null) moves.push_back({ref.optional ? 'C' : 'D', &ref, nullptr});
            }
            cell = from;
        }
        std::reverse(moves.begin(), moves.end());
        return moves;
    }

   private:
    // The first row of the table with the least costs before arc `a` of the reference, put together where arcs join.
    size_t row_above(size_t a) {
        const Arcs& rows = ref_.joins[a];
        if (a && rows.empty()) return (a - 1) * width_;
        const size_t spare = ref_.words.size() * width_;
        for (size_t b = 0; b < width_; ++b) {
            float least = kInfinity;
            for (const size_t row : rows) least = std::min(least, table_[row * width_ + b]);
            table_[spare + b] = least;
        }
        return spare;
    }

    void fill(size_t a, size_t up) {
        const size_t row = a * width_;
        const Word& ref = *ref_.words[a];
        float corner = kInfinity, left = kInfinity;  // nothing but a deletion leads to the first column
        for (size_t b = 0; b < width_; ++b) {
            const Word& hyp = *hyp_.words[b];
            if (!hyp_.joins[b].empty()) {
                corner = least(up, hyp_.joins[b]);
                left = least(row, hyp_.joins[b]);
            }
            const float above = table_[up + b];
            left = std::min({corner + cost_of(ref, hyp), left + hyp.gap, above + ref.gap});
            if (!a && !b) left = 0;
            table_[row + b] = left;
            corner = above;
        }
    }

    float least(size_t row, const Arcs& columns) const {
        float least = kInfinity;
        for (const size_t b : columns) least = std::min(least, table_[row + b]);
        return least;
    }

    // The cell from which a move along the reference, the hypothesis or both leads to (a, b): the first of least cost.
    size_t before(size_t a, size_t b, bool ref, bool hyp) const {
        const Arcs none, &rows = ref ? ref_.joins[a] : none, &columns = hyp ? hyp_.joins[b] : none;
        if (rows.empty() && columns.empty()) return (a - ref) * width_ + b - hyp;
        return first_least(rows.empty() ? Arcs{a - ref} : rows, columns.empty() ? Arcs{b - hyp} : columns);
    }

    size_t first_least(const Arcs& rows, const Arcs& columns) const {
        size_t first = rows[0] * width_ + columns[0];
        for (const size_t a : rows)
            for (const size_t b : columns)
                if (table_[a * width_ + b] < table_[first]) first = a * width_ + b;
        return first;
    }

    bool leads(size_t before, float step, size_t cell) const { return table_[before] + step == table_[cell]; }

    static constexpr float kInfinity = std::numeric_limits<float>::infinity();

    const Network &ref_, &hyp_;
    const size_t width_;
    vector<float>& table_;  // least cost of reaching the arcs (a, b) at a * width + b, in 32 bits as in sclite
};

}  // namespace hub5

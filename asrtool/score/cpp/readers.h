// As stm.py and ctm.py: the files as they stand.

#pragma once

#include <map>

#include "lines.h"

namespace hub5 {

struct StmSegment {
    Side side;
    string_view speaker;
    double start_s, end_s;
    string_view labels;  // without their brackets
    string text;
};

inline vector<StmSegment> read_stm(string_view text) {
    vector<StmSegment> segments;
    for_each_line(text, [&segments](string_view line) {
        const vector<string_view> fields = split(line);
        if (fields.size() < 5 || has_any(fields[2], "<>{}")) throw Declined();
        const double start_s = to_number(fields[3]), end_s = to_number(fields[4]);
        if (end_s < start_s) throw Declined();
        string_view labels;
        if (fields.size() > 5 && fields[5][0] == '<') {
            labels = fields[5].substr(1, fields[5].size() - 2);
            if (fields[5].size() < 3 || fields[5].back() != '>' || has_any(labels, "<>")) throw Declined();
        }
        const string words = join({fields.begin() + (labels.empty() ? 5 : 6), fields.end()});
        segments.push_back({read_side(fields), fields[2], start_s, end_s, labels, words});
    });
    if (segments.empty()) throw Declined();
    return segments;
}

struct CtmWord {
    double start_s, duration_s;
    string_view word, confidence;
};

inline std::map<Side, vector<CtmWord>> read_ctm(string_view text) {
    std::map<Side, vector<CtmWord>> sides;
    Side last;
    vector<CtmWord>* words = nullptr;  // of the last side
    for_each_line(text, [&](string_view line) {
        const vector<string_view> fields = split(line);
        if (fields.size() != 5 && fields.size() != 6) throw Declined();
        const Side side = read_side(fields);
        const string_view confidence = fields.size() == 6 ? fields[5] : "";
        const bool negative = fields[2][0] == '-';
        const double start_s = to_number(fields[2].substr(negative));
        const bool is_number = confidence.find_first_not_of("0123456789.-") == string_view::npos;
        if (!is_number || has_any(fields[4], "<")) throw Declined();
        if (!words || !(side == last)) words = &sides[last = side];
        words->push_back({negative ? -start_s : start_s, to_number(fields[3]), fields[4], confidence});
    });
    return sides;
}

}  // namespace hub5

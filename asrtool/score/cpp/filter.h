// As filter.py: the filter for a text.

#pragma once

#include "rules.h"

namespace hub5 {

inline void check_optionals(string_view text) {
    bool open = false, empty = false;
    for (const char c : text) {
        if ((c == '(' && open) || (c == ')' && (!open || empty))) throw Declined();
        if (c == '(' || c == ')') {
            open = empty = c == '(';
        } else if (c != ' ') {
            empty = false;
        }
    }
    if (open) throw Declined();
}

inline string split_hyphens(const string& text) {
    string result;
    for (size_t at = 0; at < text.size(); ++at) {
        result += text[at];
        if (at + 2 >= text.size() || text[at + 1] != '-') continue;
        if (is_one_of(text[at], "( ") || is_one_of(text[at + 2], ") ")) continue;
        result += ' ';
        ++at;
    }
    return result;
}

// "( A B )" becomes "(A) (B)".
inline string split_optionals(const string& text) {
    string result;
    size_t at = 0;
    const auto skip_spaces = [&text](size_t from) { return std::min(text.find_first_not_of(' ', from), text.size()); };
    while (at < text.size()) {
        const char c = text[at++];
        if (c == ')')
            while (!result.empty() && result.back() == ' ') result.pop_back();
        result += c;
        if (c != '(') continue;
        const bool has_gap = at < text.size() && text[at] == ' ';
        at = skip_spaces(at);
        while (has_gap) {
            const size_t end = std::min(text.find_first_of("() ", at), text.size()), next = skip_spaces(end);
            if (end == at || next == end || next == text.size() || is_one_of(text[next], "()")) break;
            result.append(text, at, end - at).append(") (");
            at = next;
        }
    }
    return result;
}

inline string filter(string_view text, const RuleSet* rules) {
    check_optionals(text);
    string filtered = " ";
    for (const char c : text) {
        if (c == ')') filtered += ' ';
        filtered += c >= 'a' && c <= 'z' ? static_cast<char>(c - ('a' - 'A')) : c;
        if (c == '(') filtered += ' ';
    }
    filtered += ' ';
    if (rules) filtered = rules->apply(filtered);
    if (has_any(filtered, "-")) filtered = split_hyphens(filtered);
    if (has_any(filtered, "()")) filtered = split_optionals(filtered);
    if (has_any(filtered, ";\\<\t")) throw Declined();
    return lower(filtered);
}

}  // namespace hub5

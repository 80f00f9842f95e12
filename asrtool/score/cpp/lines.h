// As lines.py: lines, tokens and numbers.

#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace hub5 {

using std::string;
using std::string_view;
using std::vector;

struct Declined {};     // this input is for the Python modules
struct PythonError {};  // an exception of Python is set

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_gap(char c) { return c == ' ' || c == '\t'; }
inline bool is_one_of(char c, string_view characters) { return characters.find(c) != string_view::npos; }
inline bool has_any(string_view text, string_view characters) {
    for (const char c : characters)
        if (text.find(c) != string_view::npos) return true;
    return false;
}
inline bool starts_with(string_view text, string_view part) { return text.substr(0, part.size()) == part; }
inline bool ends_with(string_view text, string_view part) {
    return text.size() >= part.size() && text.substr(text.size() - part.size()) == part;
}

inline string lower(string_view text) {
    string result(text);
    for (char& c : result)
        if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
    return result;
}

inline string_view strip(string_view text) {
    while (!text.empty() && is_gap(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_gap(text.back())) text.remove_suffix(1);
    return text;
}

inline vector<string_view> split(string_view text) {
    vector<string_view> tokens;
    tokens.reserve(8);
    size_t at = 0;
    while (at < text.size()) {
        const size_t start = at;
        while (at < text.size() && !is_gap(text[at])) ++at;
        if (at > start) tokens.push_back(text.substr(start, at - start));
        ++at;
    }
    return tokens;
}

inline string join(const vector<string_view>& tokens) {
    string text;
    for (const string_view token : tokens) {
        if (!text.empty()) text += ' ';
        text += token;
    }
    return text;
}

template <typename Use>
inline void for_each_line(string_view text, Use use) {
    if (!text.empty() && text.back() != '\n') throw Declined();
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const string_view line = strip(text.substr(0, end));
        if (!line.empty() && !starts_with(line, ";;")) use(line);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

// Digits with or without a point, at most nine before it.
inline double to_number(string_view text) {
    double digits = 0, scale = 0;  // numbers below 1e15 are exact, and so is their quotient as exact as can be
    for (const char c : text) {
        if (is_digit(c)) {
            digits = digits * 10 + (c - '0');
            scale *= 10;
        } else if (c == '.' && scale == 0) {
            scale = 1;
        } else {
            throw Declined();
        }
    }
    if (text.empty() || text == "." || std::min(text.find('.'), text.size()) > 9 || text.size() > 15) throw Declined();
    return scale > 1 ? digits / scale : digits;
}

struct Side {
    string_view file, gap, channel;

    bool operator<(const Side& other) const { return key() < other.key(); }
    bool operator==(const Side& other) const { return key() == other.key(); }

   private:
    std::tuple<string_view, string_view, string_view> key() const { return {file, gap, channel}; }
};

using Channel = std::pair<string, string>;
inline Channel channel_of(const Side& side) { return {lower(side.file), lower(side.channel)}; }

inline Side read_side(const vector<string_view>& fields) {
    if (has_any(fields[0], "<>{}") || has_any(fields[1], "<>{}")) throw Declined();
    const char* const gap = fields[0].data() + fields[0].size();
    return {fields[0], string_view(gap, static_cast<size_t>(fields[1].data() - gap)), fields[1]};
}

}  // namespace hub5

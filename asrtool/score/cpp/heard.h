// As the class CtmFilter of filter.py: the words of a ctm, filtered, and their midpoints.

#pragma once

#include <Python.h>

#include <cmath>
#include <memory>
#include <unordered_map>

#include "filter.h"
#include "network.h"
#include "readers.h"

namespace hub5 {

// Python's round(time_s, 3).
inline double to_ms(double time_s) {
    const double scaled = time_s * 1000, whole = std::floor(scaled + 0.5);
    if (std::fabs(scaled - whole) < 0.49) return whole / 1000;
    const std::unique_ptr<char, void (*)(void*)> text(PyOS_double_to_string(time_s, 'f', 3, 0, nullptr), PyMem_Free);
    const double rounded = text ? PyOS_string_to_double(text.get(), nullptr, nullptr) : 0;
    if (PyErr_Occurred()) throw PythonError();
    return rounded;
}

struct Filtered {
    vector<vector<const Word*>> alternatives;
    bool untouched = false;
};

struct Heard {
    const Filtered* word;  // what it is one of the words of, or all of them
    size_t number;         // which one, where there are no alternatives
    double middle_s;
};

class CtmFilter {
   public:
    CtmFilter(const RuleSet* rules, Words& words) : rules_(rules), words_(words) {}

    void apply(const vector<CtmWord>& ctm, vector<Heard>& heard) {
        for (const CtmWord& word : ctm) {
            const Filtered& filtered = look_up(word);
            const auto& alternatives = filtered.alternatives;
            if (filtered.untouched) {
                heard.push_back({&filtered, 0, word.start_s + word.duration_s / 2});
            } else if (alternatives.size() == 1) {
                for (size_t number = 0; number < alternatives[0].size(); ++number)
                    heard.push_back({&filtered, number, middle_s(word, number, alternatives[0].size())});
            } else if (alternatives.size() > 1) {
                double latest_s = 0;  // sclite begins at 0
                for (const auto& words : alternatives)
                    for (size_t number = 0; number < words.size(); ++number)
                        latest_s = std::max(latest_s, middle_s(word, number, words.size()));
                heard.push_back({&filtered, 0, latest_s});
            }
        }
    }

   private:
    static double middle_s(const CtmWord& word, size_t number, size_t num_words) {
        const double duration_s = word.duration_s / static_cast<double>(num_words);
        return to_ms(word.start_s + duration_s * static_cast<double>(number)) + to_ms(duration_s) / 2;
    }

    const Filtered& look_up(const CtmWord& word) {
        auto& known = known_[!word.confidence.empty()];
        const auto found = known.find(word.word);
        if (found != known.end()) return found->second;
        return known[word.word] = take_apart(filter(word.word, rules_), word.confidence);
    }

    Filtered take_apart(const string& text, string_view confidence) {
        string spaced;
        for (const char c : text) spaced += is_one_of(c, "{}") ? string{' ', c, ' '} : string{c};
        vector<string_view> tokens = split(spaced);
        Filtered filtered;
        if (tokens.size() + !confidence.empty() == 1) {
            // The confidence of a word that became nothing passes for the word, and differs from word to word.
            if (tokens.empty()) throw Declined();
            filtered.untouched = true;
            filtered.alternatives = {{words_.make(tokens[0])}};
            return filtered;
        }
        if (confidence.empty() && !tokens.empty() &&
            tokens.back().find_first_not_of("0123456789.-") == string_view::npos)
            tokens.pop_back();
        string rest = join(tokens);
        while (!rest.empty()) {
            const size_t end = std::min(rest.find('/'), rest.size());
            string alternative = rest.substr(0, end);
            const auto is_brace = [](char c) { return is_one_of(c, "{}"); };
            alternative.erase(std::remove_if(alternative.begin(), alternative.end(), is_brace), alternative.end());
            filtered.alternatives.emplace_back();
            for (const string_view token : split(alternative))
                filtered.alternatives.back().push_back(words_.make(token));
            if (filtered.alternatives.back().empty()) throw Declined();
            rest.erase(0, end + 1);
        }
        return filtered;
    }

    const RuleSet* rules_;
    Words& words_;
    std::unordered_map<string_view, Filtered> known_[2];  // without and with confidence
};

inline void add_heard(const Heard& heard, Network& network) {
    const auto& alternatives = heard.word->alternatives;
    if (alternatives.size() == 1) {
        network.add(alternatives[0][heard.number]);
        return;
    }
    network.add_alternatives([&](auto next) {
        for (const auto& words : alternatives) {
            for (const Word* const word : words) network.add(word);
            next();
        }
    });
}

}  // namespace hub5

// As network.py: words, and words with alternatives as a network.

#pragma once

#include <deque>
#include <unordered_map>

#include "lines.h"

namespace hub5 {

struct Word {
    string text, shown;
    size_t id, number;  // of its own, and the same for words of the same text
    bool optional, fragment, null;
    float gap;
};

class Words {
   public:
    const Word* make(string_view token) {
        const auto found = by_token_.find(token);
        if (found != by_token_.end()) return found->second;
        tokens_.emplace_back(token);
        words_.push_back(decode(token));
        return by_token_[tokens_.back()] = &words_.back();
    }

   private:
    Word decode(string_view token) {
        if (token.size() > 1 && token.back() == '*') token.remove_suffix(1);
        const bool optional = token.size() > 1 && token.front() == '(' && token.back() == ')';
        const bool fragment = starts_with(token, "-") || ends_with(token, "-") || (optional && ends_with(token, "-)"));
        const bool null = token == "@";
        const string text(optional ? token.substr(1, token.size() - 2) : token);
        const size_t number = numbers_.emplace(text, numbers_.size()).first->second;
        const float gap = null ? 0.001f : optional ? 2.0f : 3.0f;
        return {text, string(token), words_.size(), number, optional, fragment, null, gap};
    }

    std::deque<string> tokens_;  // a deque, because there is a look into each
    std::deque<Word> words_;
    std::unordered_map<string_view, const Word*> by_token_;
    std::unordered_map<string, size_t> numbers_;
};

using Arcs = vector<size_t>;

struct Network {
    vector<const Word*> words;
    vector<Arcs> joins;  // none for an arc that follows the one before it
    Arcs ends;

    explicit Network(const Word* start) { add(start); }

    // Add a word behind the ends.
    void add(const Word* word) {
        const size_t arc = words.size();
        joins.push_back(arc == 0 || (ends.size() == 1 && ends[0] + 1 == arc) ? Arcs() : ends);
        words.push_back(word);
        ends.assign(1, arc);
    }

    // Add alternatives behind the ends: `add_each` adds one, and calls what it is given after each.
    template <typename AddEach>
    void add_alternatives(AddEach add_each) {
        const Arcs before = ends;
        Arcs joined;
        add_each([&] {
            joined.insert(joined.end(), ends.begin(), ends.end());
            ends = before;
        });
        ends = joined;
    }
};

inline bool is_same(const Word& ref, const Word& hyp) {
    if (ref.fragment || hyp.fragment) {
        for (const auto& [one, other] : {std::pair(string_view(ref.text), string_view(hyp.text)),
                                         std::pair(string_view(hyp.text), string_view(ref.text))}) {
            if (one.size() > 1 && one.front() == '-') return ends_with(other, one.substr(1));
            if (one.size() > 1 && one.back() == '-') return starts_with(other, one.substr(0, one.size() - 1));
        }
    }
    return ref.number == hyp.number;
}

}  // namespace hub5

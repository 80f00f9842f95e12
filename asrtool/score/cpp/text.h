// As text.py: the network of a reference text.

#pragma once

#include "network.h"

namespace hub5 {

class TextReader {
   public:
    TextReader(Words& words, Network& network) : words_(words), network_(network) {}

    void read(string_view text) { add(text, 0); }

   private:
    static constexpr int kMaxDepth = 50;

    void add(string_view text, int depth) {
        size_t at = 0;
        while ((at = text.find_first_not_of(' ', at)) != string_view::npos) {
            const size_t start = at;
            if (text[start] == '{') {
                const size_t end = closing(text, start);
                add_alternatives(text.substr(start + 1, end - start - 1), depth + 1);
                at = end + 1;  // a word may follow without a space
            } else {
                at = std::min(text.find(' ', start), text.size());
                const string_view token = text.substr(start, at - start);
                if (has_any(token, "{}")) throw Declined();
                network_.add(words_.make(token));
            }
        }
    }

    static size_t closing(string_view text, size_t opening) {
        int depth = 0;
        for (size_t at = opening; at < text.size(); ++at) {
            if (text[at] == '{') ++depth;
            if (text[at] == '}' && --depth == 0) return at;
        }
        throw Declined();
    }

    void add_alternatives(string_view inner, int depth) {
        if (depth > kMaxDepth) throw Declined();
        network_.add_alternatives([&](auto next) {
            size_t start = 0;
            int num_open = 0;
            bool is_empty = true;
            for (size_t at = 0; at <= inner.size(); ++at) {
                if (at < inner.size() && (inner[at] != '/' || num_open)) {
                    num_open += inner[at] == '{' ? 1 : inner[at] == '}' ? -1 : 0;
                    continue;
                }
                const string_view alternative = inner.substr(start, at - start);
                start = at + 1;
                if (alternative.find_first_not_of(' ') == string_view::npos) continue;
                is_empty = false;
                add(alternative, depth);
                next();
            }
            if (is_empty) throw Declined();
        });
    }

    Words& words_;
    Network& network_;
};

}  // namespace hub5

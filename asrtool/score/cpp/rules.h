// As glm.py: the mapping rules for one input.

#pragma once

#include "lines.h"

namespace hub5 {

struct Rule {
    string source, target, left, right;
};

class RuleSet {
   public:
    explicit RuleSet(vector<Rule> rules) : rules_(std::move(rules)) {  // none with an empty source
        for (const Rule& rule : rules_) {
            const string start = rule.source + rule.right;
            for (const bool behind_space : {false, true})
                if (rule.left.empty() || (rule.left.back() == ' ') == behind_space)
                    by_start_[behind_space][index(start[0])].push_back({&rule, start.c_str()[1]});
        }
    }

    string apply(const string& text) const {
        string result;
        size_t at = 0;
        while (at < text.size()) {
            if (const Rule* const rule = first_that_fits(text, at)) {
                result += rule->target;
                at += rule->source.size();
            } else {
                result += text[at++];
            }
        }
        return result;
    }

   private:
    static size_t index(char c) { return static_cast<unsigned char>(c); }

    const Rule* first_that_fits(const string& text, size_t at) const {
        for (const auto& [rule, second] : by_start_[at > 0 && text[at - 1] == ' '][index(text[at])]) {
            if (second && text.c_str()[at + 1] != second) continue;
            const size_t len_left = rule->left.size(), len_source = rule->source.size();
            if (at >= len_left && text.compare(at, len_source, rule->source) == 0 &&
                text.compare(at - len_left, len_left, rule->left) == 0 &&
                text.compare(at + len_source, rule->right.size(), rule->right) == 0)
                return rule;
        }
        return nullptr;
    }

    const vector<Rule> rules_;
    // By whether a space is before the source and by its first byte: rules with their second byte, 0 for any.
    vector<std::pair<const Rule*, char>> by_start_[2][256];
};

}  // namespace hub5

// What hub5.py does with well-formed files, compiled: reading, filtering, finding the segment of each word, aligning.
//
// The Python modules hold the rules and say where they come from; the headers in cpp/ have their names, and the same
// tests run over both. Whatever is malformed or rare (marks of alternatives in a ctm, tags, backslashes) is declined by
// returning None: then the Python modules score it or say what is wrong with it.
//
// Texts are UTF-8. All that is looked for in them is ASCII, so that bytes do where Python has characters.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <unordered_map>

#include "cpp/align.h"
#include "cpp/heard.h"
#include "cpp/text.h"

namespace hub5 {

struct Scored {
    const StmSegment* segment;
    string reference;
    vector<Move> moves;
};

class Scorer {
   public:
    Scorer(string_view stm, string_view ctm, const RuleSet* ref_rules, const RuleSet* hyp_rules)
        : segments_(read_stm(stm)), ctm_(read_ctm(ctm)), ref_rules_(ref_rules), ctm_filter_(hyp_rules, words_) {}

    const vector<Scored>& run() {
        std::stable_sort(segments_.begin(), segments_.end(), [](const StmSegment& one, const StmSegment& other) {
            return one.side == other.side ? one.start_s < other.start_s : one.side < other.side;
        });
        auto side = ctm_.begin();
        for (size_t start = 0, stop; start < segments_.size(); start = stop) {
            const Channel channel = channel_of(segments_[start].side);
            stop = start + 1;
            while (stop < segments_.size() && channel_of(segments_[stop].side) == channel) ++stop;
            vector<Heard> heard;
            for (; side != ctm_.end() && channel_of(side->first) == channel; ++side) {
                std::stable_sort(side->second.begin(), side->second.end(),
                                 [](const CtmWord& one, const CtmWord& other) { return one.start_s < other.start_s; });
                ctm_filter_.apply(side->second, heard);
            }
            score_channel(start, stop, heard);
        }
        if (side != ctm_.end()) throw Declined();
        return scored_;
    }

   private:
    void score_channel(size_t start, size_t stop, const vector<Heard>& heard) {
        size_t first = 0;
        for (size_t number = start; number < stop; ++number) {
            const StmSegment& segment = segments_[number];
            size_t last = number + 1 < stop ? first : heard.size();
            while (last < heard.size() && heard[last].middle_s < static_cast<float>(segment.end_s)) ++last;
            score_segment(segment, heard.data() + first, heard.data() + last);
            first = last;
        }
    }

    void score_segment(const StmSegment& segment, const Heard* first, const Heard* last) {
        const string text = filter(segment.text.empty() ? " " : " " + segment.text + " ", ref_rules_);
        if (text.find_first_not_of(' ') < 2) throw Declined();  // a rule took the space before the first word
        if (text.find("ignore_time_segment_in_scoring") != string::npos) return;
        Network ref(start_), hyp(start_);
        TextReader(words_, ref).read(text);
        for (; first != last; ++first) add_heard(*first, hyp);
        scored_.push_back({&segment, join(split(text)), Search(ref, hyp, room_).trace()});
    }

    vector<StmSegment> segments_;
    std::map<Side, vector<CtmWord>> ctm_;  // in the order of NIST's scorer
    const RuleSet* ref_rules_;
    Words words_;
    const Word* start_ = words_.make("");
    CtmFilter ctm_filter_;
    vector<Scored> scored_;
    vector<float> room_;
};

// ---- Python ---------------------------------------------------------------------------------------------------------

struct Release {
    void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Object = std::unique_ptr<PyObject, Release>;

Object own(PyObject* object) {
    if (!object) throw PythonError();
    return Object(object);
}

Object to_python(string_view text) {
    return own(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr));
}

string_view to_text(PyObject* text) {
    Py_ssize_t size = 0;
    const char* const data = PyUnicode_AsUTF8AndSize(text, &size);
    if (!data) throw PythonError();
    return {data, static_cast<size_t>(size)};
}

std::unique_ptr<RuleSet> read_rules(PyObject* rules) {
    if (rules == Py_None) return nullptr;
    if (!PyList_Check(rules)) {
        PyErr_SetString(PyExc_TypeError, "rules are a list or None");
        throw PythonError();
    }
    vector<Rule> result;
    for (Py_ssize_t number = 0; number < PyList_GET_SIZE(rules); ++number) {
        PyObject *source, *target, *left, *right;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(rules, number), "UUUU", &source, &target, &left, &right))
            throw PythonError();
        Rule rule;
        rule.source = to_text(source);
        rule.target = to_text(target);
        rule.left = to_text(left);
        rule.right = to_text(right);
        result.push_back(std::move(rule));
    }
    return std::make_unique<RuleSet>(std::move(result));
}

class Pairs {
   public:
    explicit Pairs(PyObject* make_pair) : make_pair_(make_pair) {}

    Object of(const vector<Move>& moves) {
        Object pairs = own(PyTuple_New(static_cast<Py_ssize_t>(moves.size())));
        for (size_t number = 0; number < moves.size(); ++number) {
            PyObject* const pair = make(moves[number]);
            Py_INCREF(pair);
            PyTuple_SET_ITEM(pairs.get(), static_cast<Py_ssize_t>(number), pair);
        }
        return pairs;
    }

   private:
    PyObject* make(const Move& move) {
        const uint64_t ref_id = move.ref ? move.ref->id + 1 : 0, hyp_id = move.hyp ? move.hyp->id + 1 : 0;
        Object& pair = known_[ref_id << 32 | hyp_id];
        if (!pair) {
            const Object kind = to_python(string_view(&move.kind, 1));
            const Object ref = to_python(move.ref ? move.ref->shown : "");
            const Object hyp = to_python(move.hyp ? move.hyp->shown : "");
            pair = own(PyObject_CallFunctionObjArgs(make_pair_, kind.get(), ref.get(), hyp.get(), nullptr));
        }
        return pair.get();
    }

    PyObject* make_pair_;
    std::unordered_map<uint64_t, Object> known_;  // by the ids of both words, which decide the kind too
};

Object to_python(const Scored& scored, Pairs& pairs) {
    const StmSegment& segment = *scored.segment;
    const Object file = to_python(segment.side.file), channel = to_python(segment.side.channel);
    const Object speaker = to_python(segment.speaker), labels = to_python(segment.labels);
    const Object reference = to_python(scored.reference), aligned = pairs.of(scored.moves);
    return own(Py_BuildValue("(OOOddOOO)", file.get(), channel.get(), speaker.get(), segment.start_s, segment.end_s,
                             labels.get(), reference.get(), aligned.get()));
}

PyObject* score(PyObject*, PyObject* arguments) {
    PyObject *stm, *ctm, *ref_rules, *hyp_rules, *make_pair;
    if (!PyArg_ParseTuple(arguments, "UUOOO", &stm, &ctm, &ref_rules, &hyp_rules, &make_pair)) return nullptr;
    try {
        const auto ref = read_rules(ref_rules), hyp = read_rules(hyp_rules);
        Scorer scorer(to_text(stm), to_text(ctm), ref.get(), hyp.get());
        const vector<Scored>& scored = scorer.run();
        Pairs pairs(make_pair);
        Object result = own(PyList_New(static_cast<Py_ssize_t>(scored.size())));
        for (size_t number = 0; number < scored.size(); ++number)
            PyList_SET_ITEM(result.get(), static_cast<Py_ssize_t>(number), to_python(scored[number], pairs).release());
        return result.release();
    } catch (const Declined&) {
        Py_RETURN_NONE;
    } catch (const PythonError&) {
        return nullptr;
    } catch (const std::exception&) {  // of the standard library, which here runs out of memory and does nothing else
        return PyErr_NoMemory();
    }
}

PyMethodDef methods[] = {{"score", score, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "asrtool.score._hub5", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace hub5

PyMODINIT_FUNC PyInit__hub5() {
    PyObject* const module = PyModule_Create(&hub5::definition);
    // So that a test can tell whether this was compiled from the source beside it.
    if (module && PyModule_AddStringConstant(module, "SOURCE_DIGEST", SOURCE_DIGEST) == 0) return module;
    Py_XDECREF(module);
    return nullptr;
}

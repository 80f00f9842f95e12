// What asynchronous.py does where no learner is lost, joins or is slow for a time, compiled: the same events in the
// same order, so that the sums are the same to rounding.
//
// asynchronous.py says what the events stand for; names here are those of its methods.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <queue>
#include <vector>

namespace events {

using std::vector;

enum Exchange { kNothing, kGossip, kPairs, kServers };
enum Kind { kGradients, kServe, kAnswer, kReceive, kTake };

constexpr int64_t kNone = -1;

struct Event {
    double seconds;
    int64_t order;
    Kind kind;
    int32_t unit, other;
    bool operator>(const Event& event) const {
        return seconds > event.seconds || (seconds == event.seconds && order > event.order);
    }
};

struct Unit {
    double free_s = 0, begin_s = 0, span_s = 0, data_s = 0, loaded_s = 0, sent_s = 0;
    int64_t round = kNone, ahead = kNone, before = kNone, last = kNone, num_steps = 0, num_changes = 0, version = 0;
    int64_t awaited = 0;
    bool is_waiting = false;
};

// One message at a time, each way.
struct Node {
    double out_s = 0, in_s = 0;
};

// As asynchronous.py gives it, in this order.
struct Settings {
    int exchange;
    Py_ssize_t num_units, period, num_servers;
    double message_bytes, size, outer_rate, outer_latency_s, inner_rate, inner_latency_s, host_s;
    double tail_s, comm_s, start_s, checkpoint_s;
    long long num_rounds, rounds_of_epoch, every_steps;
    int counts_steps;  // whether staleness is in the steps of all (hogwild)
    double slow, ahead;
};

// The sums of a unit; asynchronous.py reads them in this order.
struct Sums {
    double free_s, span_s, data_s, wait_s, saved_s;
    double num_steps, num_messages, num_answers, staleness, num_exchanges, num_skipped, num_short;
};

class Training {
   public:
    Training(const Settings& settings, const double* spans, const double* loads, const int32_t* partners,
             const int32_t* nodes, Sums* sums)
        : settings_(settings),
          spans_(spans),
          loads_(loads),
          partners_(partners),
          nodes_(nodes),
          sums_(sums),
          units_(settings.num_units),
          busy_s_(settings.num_units) {
        links_.resize(1 + *std::max_element(nodes, nodes + settings.num_units));
    }

    void run() {
        for (int32_t number = 0; number < settings_.num_units; ++number) {
            Unit& unit = units_[number];
            unit.free_s = settings_.start_s;
            unit.ahead = draw(unit);
            unit.loaded_s = settings_.start_s + loading_s(number);
        }
        for (int32_t number = 0; number < settings_.num_units; ++number) begin_step(number);
        while (!events_.empty()) {
            const Event event = events_.top();
            events_.pop();
            switch (event.kind) {
                case kGradients:
                    have_gradients(event.seconds, event.unit);
                    break;
                case kServe:
                    serve(event.seconds, event.unit, event.other);
                    break;
                case kAnswer:
                    answer(event.seconds, event.unit, event.other);
                    break;
                case kReceive:
                    receive(event.seconds, event.unit, event.other);
                    break;
                case kTake:
                    take(event.seconds, event.unit);
                    break;
            }
        }
        for (int32_t number = 0; number < settings_.num_units; ++number) sums_[number].free_s = units_[number].free_s;
    }

   private:
    void at(double seconds, Kind kind, int32_t unit, int32_t other = 0) {
        events_.push({seconds, order_++, kind, unit, other});
    }

    void begin_step(int32_t number) {
        Unit& unit = units_[number];
        unit.round = unit.ahead;
        unit.ahead = kNone;
        if (unit.round == kNone) return;
        save(number);
        unit.begin_s = std::max(unit.free_s, unit.loaded_s);
        unit.data_s = unit.begin_s - unit.free_s;
        unit.ahead = draw(unit);
        unit.span_s = spans_[number * settings_.period + unit.num_steps % settings_.period];
        ++unit.num_steps;
        unit.loaded_s = unit.begin_s + loading_s(number);
        at(unit.begin_s + unit.span_s, kGradients, number);
    }

    double loading_s(int32_t number) const {
        return loads_ ? loads_[number * settings_.period + units_[number].num_steps % settings_.period] : 0;
    }

    void save(int32_t number) {
        Unit& unit = units_[number];
        if (!unit.num_steps) return;
        const int64_t drawn = unit.before == kNone ? unit.last : unit.before;
        const bool epoch_begins = unit.round / settings_.rounds_of_epoch > drawn / settings_.rounds_of_epoch;
        if (!epoch_begins && !(settings_.every_steps && unit.num_steps % settings_.every_steps == 0)) return;
        unit.free_s += settings_.checkpoint_s;
        sums_[number].saved_s += settings_.checkpoint_s;
    }

    void have_gradients(double seconds, int32_t number) {
        Unit& unit = units_[number];
        if (settings_.exchange == kServers) {
            unit.is_waiting = true;
            unit.sent_s = seconds;
            unit.awaited = settings_.num_servers;
            for (int32_t server = 0; server < settings_.num_servers; ++server)
                transmit(seconds, number, server, settings_.num_servers, kServe);
            return;
        }
        seconds += settings_.tail_s;
        if (settings_.exchange == kPairs && unit.awaited) {
            unit.is_waiting = true;
            unit.sent_s = seconds;
            return;
        }
        if (settings_.counts_steps) count_step(unit);
        end_step(seconds, number, 0);
    }

    void end_step(double seconds, int32_t number, double waited_s) {
        Unit& unit = units_[number];
        Sums& sums = sums_[number];
        const double end_s = seconds + settings_.comm_s;
        sums.staleness += unit.num_changes;
        unit.num_changes = 0;
        send(end_s, number);
        sums.num_steps += 1;
        sums.num_short += unit.round % settings_.rounds_of_epoch == settings_.rounds_of_epoch - 1;
        sums.span_s += unit.span_s;
        sums.wait_s += waited_s;
        sums.data_s += unit.data_s;
        unit.free_s = end_s;
        begin_step(number);
    }

    void send(double seconds, int32_t number) {
        Unit& unit = units_[number];
        if (settings_.exchange == kServers) sums_[number].num_messages += 1;
        if (settings_.exchange != kGossip && settings_.exchange != kPairs) return;
        const int64_t step = (unit.num_steps - 1) % settings_.period;
        const int32_t partner = partners_[step * settings_.num_units + number];
        if (partner < 0 || partner == number) return;
        if (unit.awaited) {
            sums_[number].num_skipped += 1;
            return;
        }
        unit.awaited = 1;
        sums_[number].num_messages += 1;
        transmit(seconds + settings_.host_s, number, partner, 1, kServe);
    }

    void transmit(double seconds, int32_t here, int32_t there, Py_ssize_t num_parts, Kind arrive) {
        const double num_bytes = settings_.message_bytes / static_cast<double>(num_parts);
        const int32_t node = nodes_[here], other = nodes_[there];
        if (node == other) {
            at(seconds + settings_.inner_latency_s + num_bytes / settings_.size / settings_.inner_rate, arrive, here,
               there);
            return;
        }
        const double length_s = num_bytes / settings_.outer_rate;
        const double begin_s = std::max(seconds, links_[node].out_s);
        links_[node].out_s = begin_s + length_s;
        const double end_s = std::max(begin_s + settings_.outer_latency_s, links_[other].in_s) + length_s;
        links_[other].in_s = end_s;
        at(end_s, arrive, here, there);
    }

    void serve(double seconds, int32_t asking, int32_t number) {
        busy_s_[number] = std::max(seconds, busy_s_[number]) + settings_.host_s;
        at(busy_s_[number], kAnswer, asking, number);
    }

    void answer(double seconds, int32_t asking, int32_t number) {
        if (settings_.exchange != kServers) {
            units_[number].num_changes += 1;
        } else if (number == 0) {
            count_step(units_[asking]);
        }
        sums_[number].num_answers += 1;
        transmit(seconds, number, asking, std::max<Py_ssize_t>(1, settings_.num_servers), kReceive);
    }

    void receive(double seconds, int32_t partner, int32_t number) {
        if (settings_.exchange != kServers && settings_.host_s > 0) {
            at(seconds + settings_.host_s, kTake, number, partner);
        } else {
            take(seconds, number);
        }
    }

    void take(double seconds, int32_t number) {
        Unit& unit = units_[number];
        --unit.awaited;
        if (settings_.exchange != kServers) {
            unit.num_changes += 1;
            sums_[number].num_exchanges += 1;
        }
        if (unit.is_waiting && !unit.awaited) {
            unit.is_waiting = false;
            end_step(seconds, number, seconds - unit.sent_s);
        }
    }

    void count_step(Unit& unit) {
        unit.num_changes = version_ - unit.version;
        unit.version = ++version_;
    }

    int64_t draw(Unit& unit) {
        if (next_round_ >= settings_.num_rounds || would_be_last(unit)) return kNone;
        unit.before = unit.last;
        unit.last = next_round_;
        return next_round_++;
    }

    bool would_be_last(const Unit& unit) {
        if (unit.before == kNone) return false;
        const double num_units = static_cast<double>(settings_.num_units);
        const double per_step = static_cast<double>(unit.last - unit.before);
        if (per_step <= settings_.slow * num_units) return false;
        const double until = static_cast<double>(unit.last) + per_step + settings_.ahead * (per_step - num_units);
        const bool in_last_epoch =
            unit.last / settings_.rounds_of_epoch == (settings_.num_rounds - 1) / settings_.rounds_of_epoch;
        if (until < static_cast<double>(settings_.num_rounds) || !in_last_epoch) return false;
        return ++num_done_ < settings_.num_units;
    }

    const Settings settings_;
    const double* const spans_;
    const double* const loads_;
    const int32_t* const partners_;
    const int32_t* const nodes_;
    Sums* const sums_;
    vector<Unit> units_;
    vector<double> busy_s_;
    vector<Node> links_;
    std::priority_queue<Event, vector<Event>, std::greater<Event>> events_;
    int64_t order_ = 0, next_round_ = 0, num_done_ = 0, version_ = 0;
};

// A buffer of Python while it is used; None is an empty one.
class Buffer {
   public:
    Buffer(PyObject* object, int flags) : is_there_(object != Py_None) {
        if (is_there_ && PyObject_GetBuffer(object, &view_, flags) != 0) throw std::exception();
    }
    ~Buffer() {
        if (is_there_) PyBuffer_Release(&view_);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    template <typename Value>
    Value* values() const {
        return is_there_ ? static_cast<Value*>(view_.buf) : nullptr;
    }

   private:
    const bool is_there_;
    Py_buffer view_;
};

PyObject* run(PyObject*, PyObject* arguments) {
    Settings settings;
    PyObject *spans, *loads, *partners, *nodes, *sums;
    if (!PyArg_ParseTuple(arguments, "(innndddddddddddLLLidd)OOOOO", &settings.exchange, &settings.num_units,
                          &settings.period, &settings.num_servers, &settings.message_bytes, &settings.size,
                          &settings.outer_rate, &settings.outer_latency_s, &settings.inner_rate,
                          &settings.inner_latency_s, &settings.host_s, &settings.tail_s, &settings.comm_s,
                          &settings.start_s, &settings.checkpoint_s, &settings.num_rounds, &settings.rounds_of_epoch,
                          &settings.every_steps, &settings.counts_steps, &settings.slow, &settings.ahead, &spans,
                          &loads, &partners, &nodes, &sums))
        return nullptr;
    try {
        const Buffer of_spans(spans, PyBUF_SIMPLE), of_loads(loads, PyBUF_SIMPLE), of_partners(partners, PyBUF_SIMPLE),
            of_nodes(nodes, PyBUF_SIMPLE), of_sums(sums, PyBUF_WRITABLE);
        Training training(settings, of_spans.values<double>(), of_loads.values<double>(), of_partners.values<int32_t>(),
                          of_nodes.values<int32_t>(), of_sums.values<Sums>());
        training.run();
        Py_RETURN_NONE;
    } catch (const std::exception&) {
        return PyErr_Occurred() ? nullptr : PyErr_NoMemory();
    }
}

PyMethodDef methods[] = {{"run", run, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "asrtool.simulate._events", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace events

PyMODINIT_FUNC PyInit__events() {
    PyObject* const module = PyModule_Create(&events::definition);
    // So that a test can tell whether this was compiled from the source beside it.
    if (module && PyModule_AddStringConstant(module, "SOURCE_DIGEST", SOURCE_DIGEST) == 0) return module;
    Py_XDECREF(module);
    return nullptr;
}

// What asynchronous.py and lock_step.py do where no learner is lost, joins or is slow for a time, compiled: the same
// events in the same order, so that the sums are the same to rounding.
//
// Those modules say what events and rules stand for; names here are those of their methods.

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

enum Rule { kAverage, kDelayByOne, kSuperLearner, kBlock, kServer };

// As lock_step.py gives it, in this order.
struct LockStepSettings {
    int rule;
    Py_ssize_t num_learners, period, size;  // learners that average their gradients together
    double all_s, one_s, first, mean_s, gather_s;
    long long block_steps;
    double in_s, step_s, latency_s;
    double update_s, comm_s, start_s, checkpoint_s, evaluation_s;
    long long num_rounds, rounds_of_epoch, every_steps, num_batches;
};

// The sums of a learner; lock_step.py reads them in this order.
struct LearnerSums {
    double free_s, compute_s, wait_s, data_s, between_s, blamed_s, num_steps;
};

class LockStep {
   public:
    LockStep(const LockStepSettings& settings, const double* computes, const double* loads, const double* answered,
             LearnerSums* sums)
        : settings_(settings),
          computes_(computes),
          loads_(loads),
          answered_(answered),
          sums_(sums),
          free_(settings.num_learners),
          begin_(settings.num_learners),
          computed_(settings.num_learners),
          wait_(settings.num_learners),
          loaded_(settings.num_learners),
          sorted_(settings.num_learners) {}

    void run() {
        go_on(settings_.start_s);
        for (Py_ssize_t learner = 0; learner < settings_.num_learners; ++learner)
            loaded_[learner] = free_[learner] + loading_s(learner, 0);
        for (long long number = 0; number < settings_.num_rounds; ++number) round(number);
        for (Py_ssize_t learner = 0; learner < settings_.num_learners; ++learner)
            sums_[learner].free_s = free_[learner];
    }

   private:
    double loading_s(Py_ssize_t learner, long long number) const {
        return loads_ ? loads_[learner * settings_.period + number % settings_.period] : 0;
    }

    void round(long long number) {
        const Py_ssize_t num_learners = settings_.num_learners;
        const long long left = settings_.num_batches - number % settings_.rounds_of_epoch * num_learners;
        for (Py_ssize_t learner = 0; learner < num_learners; ++learner) {
            begin_[learner] = std::max(free_[learner], loaded_[learner]);
            const double compute_s =
                learner < left ? computes_[learner * settings_.period + number % settings_.period] : 0;
            computed_[learner] = begin_[learner] + compute_s;
            sums_[learner].compute_s += compute_s + settings_.update_s;
            sums_[learner].data_s += begin_[learner] - free_[learner];
            sums_[learner].num_steps += learner < left;
        }
        const auto latest = std::max_element(computed_.begin(), computed_.end());
        double& blamed_s = sums_[latest - computed_.begin()].blamed_s;
        find_waits(number);
        for (Py_ssize_t learner = 0; learner < num_learners; ++learner) {
            sums_[learner].wait_s += wait_[learner];
            blamed_s += std::min(wait_[learner], *latest - computed_[learner]);
            free_[learner] = computed_[learner] + wait_[learner] + settings_.update_s + settings_.comm_s;
            loaded_[learner] = begin_[learner] + loading_s(learner, number + 1);
        }
        save(number + 1);
    }

    void find_waits(long long number) {
        std::fill(wait_.begin(), wait_.end(), 0);
        switch (settings_.rule) {
            case kAverage:
                average();
                break;
            case kDelayByOne:
                delay_by_one();
                break;
            case kSuperLearner:
                average();
                delay_by_one();
                for (double& wait_s : wait_) wait_s += settings_.gather_s;
                break;
            case kBlock:
                if (settings_.num_learners > 1 && (number + 1) % settings_.block_steps == 0) {
                    const double until = *std::max_element(computed_.begin(), computed_.end()) + settings_.mean_s;
                    wait_until(until);
                }
                break;
            case kServer:
                serve();
                break;
        }
    }

    void wait_until(double seconds) {
        for (size_t learner = 0; learner < wait_.size(); ++learner) wait_[learner] = seconds - computed_[learner];
    }

    void average() {
        if (settings_.size == 1) return;
        for (Py_ssize_t start = 0; start < settings_.num_learners; start += settings_.size) {
            double first = 0, last = 0;
            for (Py_ssize_t learner = start; learner < start + settings_.size; ++learner) {
                first = std::max(first, begin_[learner] + settings_.first * (computed_[learner] - begin_[learner]));
                last = std::max(last, computed_[learner]);
            }
            const double summed = std::max(first + settings_.all_s, last + settings_.one_s);
            for (Py_ssize_t learner = start; learner < start + settings_.size; ++learner)
                wait_[learner] = summed - computed_[learner];
        }
    }

    void delay_by_one() {
        if (settings_.mean_s == 0) return;
        const double until = *std::max_element(free_.begin(), free_.end()) + settings_.mean_s;
        for (size_t learner = 0; learner < wait_.size(); ++learner)
            wait_[learner] += std::max(until - (computed_[learner] + wait_[learner]), 0.0);
    }

    void serve() {
        sorted_ = computed_;
        std::sort(sorted_.begin(), sorted_.end());
        double added = 0;
        for (size_t place = 0; place < sorted_.size(); ++place)
            added = std::max(added, sorted_[place] + settings_.in_s * static_cast<double>(sorted_.size() - place));
        const double stepped = added + 4 * settings_.latency_s + settings_.step_s;
        for (size_t learner = 0; learner < wait_.size(); ++learner)
            wait_[learner] = stepped + answered_[learner] - computed_[learner];
    }

    void save(long long number) {
        const bool epoch_ends = number % settings_.rounds_of_epoch == 0;
        if (!epoch_ends && !(settings_.every_steps && number % settings_.every_steps == 0)) return;
        go_on(*std::max_element(free_.begin(), free_.end()) + settings_.checkpoint_s +
              epoch_ends * settings_.evaluation_s);
    }

    void go_on(double seconds) {
        for (size_t learner = 0; learner < free_.size(); ++learner) {
            sums_[learner].between_s += seconds - free_[learner];
            free_[learner] = seconds;
        }
    }

    const LockStepSettings settings_;
    const double* const computes_;
    const double* const loads_;
    const double* const answered_;  // of kServer alone, by learner
    LearnerSums* const sums_;
    vector<double> free_, begin_, computed_, wait_, loaded_, sorted_;
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

PyObject* run_lock_step(PyObject*, PyObject* arguments) {
    LockStepSettings settings;
    PyObject *computes, *loads, *answered, *sums;
    if (!PyArg_ParseTuple(arguments, "(innndddddLddddddddLLLL)OOOO", &settings.rule, &settings.num_learners,
                          &settings.period, &settings.size, &settings.all_s, &settings.one_s, &settings.first,
                          &settings.mean_s, &settings.gather_s, &settings.block_steps, &settings.in_s, &settings.step_s,
                          &settings.latency_s, &settings.update_s, &settings.comm_s, &settings.start_s,
                          &settings.checkpoint_s, &settings.evaluation_s, &settings.num_rounds,
                          &settings.rounds_of_epoch, &settings.every_steps, &settings.num_batches, &computes, &loads,
                          &answered, &sums))
        return nullptr;
    try {
        const Buffer of_computes(computes, PyBUF_SIMPLE), of_loads(loads, PyBUF_SIMPLE),
            of_answered(answered, PyBUF_SIMPLE), of_sums(sums, PyBUF_WRITABLE);
        LockStep training(settings, of_computes.values<double>(), of_loads.values<double>(),
                          of_answered.values<double>(), of_sums.values<LearnerSums>());
        training.run();
        Py_RETURN_NONE;
    } catch (const std::exception&) {
        return PyErr_Occurred() ? nullptr : PyErr_NoMemory();
    }
}

PyMethodDef methods[] = {{"run", run, METH_VARARGS, nullptr},
                         {"run_lock_step", run_lock_step, METH_VARARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "asrtool.predict.simulate._events", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace events

PyMODINIT_FUNC PyInit__events() {
    PyObject* const module = PyModule_Create(&events::definition);
    // So that a test can tell whether this was compiled from the source beside it.
    if (module && PyModule_AddStringConstant(module, "SOURCE_DIGEST", SOURCE_DIGEST) == 0) return module;
    Py_XDECREF(module);
    return nullptr;
}

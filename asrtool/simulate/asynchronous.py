"""Strategies whose learners wait for no step of another: discrete events, one after the other.

A unit is what takes its batches from the work queue by itself: a learner, or a super-learner of h-adpsgd. At the end of
a step it may send a message to a responder, another unit or the servers, whose answer comes back by the same links:

- gossip: to the partner of the step. The next step begins at once; where the answer to the last message is not there
  yet, none is sent (asrtool.distributed.gossip).
- pairs: the same of units of even rank, which wait at the end of a step for the answer to their last message.
- servers: a gradient to each server; the next step begins when all have answered.
- none and hogwild: nothing is sent.

A link takes one message at a time, in the order in which they are sent, each way; so do the thread of a responder and
a server. The order of events of the same instant is that in which they were found, so a scenario gives the same twice.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asrtool import registry
from asrtool.distributed.topology import Partner, check_ring, on_ring, passive_partner
from asrtool.distributed.work_queue_rules import would_be_last
from asrtool.simulate.cluster import PERIOD, Cluster
from asrtool.simulate.lock_step import AllReduceRule, all_reduce_bytes, super_learner_size
from asrtool.simulate.outcome import Outcome, Sink, StepRecord

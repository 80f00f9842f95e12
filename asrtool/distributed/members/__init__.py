"""Members of a training: heartbeats, lost learners and learners that join.

- members: the list of changes that all learners read: losses, joins, the end
- heartbeat: detects a learner that has died or hangs
- supervisor: a process beside each learner, which hides losses that others survive from the launcher
- joining: a further learner finds a running training
"""

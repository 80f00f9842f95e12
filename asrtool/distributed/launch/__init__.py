"""Start learners and let them meet.

- launcher: fork the learners of this machine, and report how they ended
- environment: the environment variables of a learner
- learner: the life of a learner process: it joins the others, and exits if one is lost
- generation: the processes that train together until a restart
- addresses: the address of each learner, on one or several hosts
"""

"""Command line: a module of commands is loaded when one of them is called.

- main: the console script, the table of commands, errors as one line
- command, options: the class of commands, options that several share
- run: run a recipe, whose command lines are parsed without running them; print its settings
- prepare, data, lang, training, decoding, results, theory, simulate: the commands by subject
"""

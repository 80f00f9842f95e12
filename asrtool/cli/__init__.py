"""Command line: one command a file, loaded when it is called.

- main: the console script, the table of commands, errors as one line
- command, options: the class of commands, options that several share
- line: parse a command line without running it, for `asrtool run`
- run, config: run a recipe, print its settings
- data, lang, training, decoding, results, planning: the commands by subject
"""

"""Command line: a module of commands is loaded when one of them is called.

- main: the console script, the table of commands, errors as one line
- command, options: the class of commands, options that several share
- line: parse a command line without running it, for `asrtool run`
- run, config: run a recipe, print its settings
- prepare, data, lang, training, decoding, results, theory, simulate: the commands by subject
"""

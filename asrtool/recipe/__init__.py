"""Recipes: stages as data, and the engine that runs those that are not done.

- stage, stages, edit: what a recipe is made of
- recipe: finding and loading one; request: options of the command line
- engine: running stages; process: one command of a stage
- plan: the stages that a run would run, and what is printed; state: whether one is done, and why not
- contents: digests of files; source: digests of code
- check: all links of a recipe
"""

"""Recipes: stages as data, and the engine that runs those that are not done.

- stage, stages, edit: what a recipe is made of
- recipe: finding and loading one; request: what the command line asks for
- engine: running stages; process: one command of a stage
- plan, state: which stages are done, and why not
- contents, digest_cache: digests of files; source: digests of code
- check: all links of a recipe; show: what is printed
"""

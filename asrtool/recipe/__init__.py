"""Recipes: stages as data, and the engine that runs those that are not done."""

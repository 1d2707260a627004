"""Build the engine's Graph from a GraphRecipe."""

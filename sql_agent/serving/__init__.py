"""A model that answers: a folder served by vLLM, an endpoint that a person names, a checkpoint."""

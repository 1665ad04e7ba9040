"""Training in one process: transformers samples, TRL updates; no Ray, no store, no vLLM."""

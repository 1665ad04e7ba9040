"""Training in one process: transformers samples, torch updates; no Ray, no store, no vLLM."""

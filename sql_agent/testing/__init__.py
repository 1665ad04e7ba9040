"""What tests and benchmarks stand on: an OpenAI-compatible server with every fault (server), spans, a worker."""

"""What tests, benchmarks and rehearsals stand on: an OpenAI-compatible server with every fault."""

"""What verl and vLLM need where there is no GPU."""

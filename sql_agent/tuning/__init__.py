"""Learning from files: supervised fine-tuning and preferences, on TRL's trainers; for `agentgrpo sft` and dpo."""

"""Learning from files: supervised fine-tuning and preferences, on TRL's trainers; train_sft.py and train_dpo.py."""

"""A comparison of models on held-out questions: trials, figures with intervals, tables."""

"""What keeps a run honest and alive: the claim on its store, its runners, its health, its clock."""

"""How far a judge can be trusted: judged answers, agreement, attacks, and the page of them."""

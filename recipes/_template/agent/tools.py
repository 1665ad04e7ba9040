"""The tools of this agent. A function's name, types and docstring are what the model is told of it."""

PRICES = {"pen": 1.5, "book": 12.0, "lamp": 30.0, "cup": 4.25}


def price_of(item: str) -> float:
    """Look up the price of one item.

    Args:
        item: its name in English, singular: pen, book, lamp or cup
    """
    if item not in PRICES:
        raise ValueError(f"there is no {item!r}; there is: {', '.join(PRICES)}")
    return PRICES[item]


def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b

"""The calculator: exact arithmetic on what a model wrote.

Guarantees: nothing but numbers, + - * / and brackets is worked out, within limits that bound time and memory; whole
results have no decimal point.
"""

import ast
import operator
from fractions import Fraction

MAX_CHARS = 200
MAX_DIGITS = 40
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
SIGNS = {ast.UAdd: operator.pos, ast.USub: operator.neg}


def calculate(expression: str) -> str:
    """Work out an expression of numbers, + - * / and brackets.

    Args:
        expression: for example (12+7)*3
    """
    if len(expression) > MAX_CHARS:
        raise ValueError(f"the expression has {len(expression)} characters; it may have {MAX_CHARS}")
    try:
        return _shown(_value(ast.parse(expression.strip(), mode="eval").body))
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError("this is no expression of numbers, + - * / and brackets") from None


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        value = OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    elif isinstance(node, ast.UnaryOp) and type(node.op) in SIGNS:
        value = SIGNS[type(node.op)](_value(node.operand))
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value = Fraction(str(node.value))
    else:
        raise ValueError("only numbers, + - * / and brackets can be worked out")
    if max(abs(value.numerator), value.denominator) >= 10**MAX_DIGITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return value


def _shown(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.10g}"

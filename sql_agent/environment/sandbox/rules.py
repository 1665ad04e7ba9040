"""What a model's Python code may say: an allow list of syntax, names, attributes and modules, and nothing beside it.

Guarantees: code that `check` lets pass reaches no attribute but those of numbers, texts and containers, no name that
begins with two underscores, and no object that is not given here: no real module, only its listed functions. Python
writes names alike that look alike (NFKC) before they are checked. Not covered: how long it runs and how much it takes;
that is the kernel's part, and so is everything, should a rule here have a hole. Standard library only.
"""

from __future__ import annotations

import ast
import builtins
import importlib
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

CODE = "code"  # the name of its file
MAX_CODE_CHARS = 10_000
MAX_OUTPUT_CHARS = 20_000

# Left out on purpose: classes and `match` (they reach attributes by other syntax), async, with, type parameters.
SYNTAX = """
Module Expression Expr Assign AugAssign AnnAssign NamedExpr Delete Pass Break Continue Assert
If For While FunctionDef Return Lambda Yield YieldFrom Global Nonlocal arguments arg keyword Starred Try ExceptHandler
Raise Import ImportFrom alias
Call Name Load Store Del Attribute Subscript Slice Constant List Tuple Dict Set
ListComp SetComp DictComp GeneratorExp comprehension JoinedStr FormattedValue IfExp
BinOp UnaryOp BoolOp Compare Add Sub Mult Div FloorDiv Mod Pow LShift RShift BitOr BitXor BitAnd MatMult
UAdd USub Not Invert And Or Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn
"""
NODES = tuple(getattr(ast, name) for name in SYNTAX.split())
BUILTINS = """
abs all any bin bool callable chr complex dict divmod enumerate filter float frozenset hash hex int isinstance iter len
list map max min next oct ord pow range repr reversed round set slice sorted str sum tuple zip
Exception ArithmeticError AssertionError AttributeError IndexError KeyError LookupError MemoryError NameError
NotImplementedError OverflowError RecursionError RuntimeError StopIteration TypeError UnboundLocalError ValueError
ZeroDivisionError
"""
# Functions of modules; "*" stands for all public ones of a module that is written in C.
MODULES = {
    "math": "*",
    "cmath": "*",
    "itertools": "*",
    "fractions": "Fraction",
    "decimal": "Decimal getcontext ROUND_HALF_UP ROUND_HALF_EVEN ROUND_DOWN ROUND_UP ROUND_FLOOR ROUND_CEILING",
    "statistics": "mean fmean median median_low median_high mode multimode stdev pstdev variance pvariance quantiles"
    " geometric_mean harmonic_mean",
    "functools": "reduce partial lru_cache cache cmp_to_key",
    "collections": "Counter OrderedDict defaultdict deque",
    "operator": "add sub mul truediv floordiv mod neg pow lt le eq ne ge gt and_ or_ xor itemgetter",
    "random": "seed random randint randrange uniform choice choices sample shuffle gauss",
    "datetime": "date datetime timedelta",
    "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
    "heapq": "heappush heappop heapify heapreplace heappushpop nlargest nsmallest",
}
FOR_DATETIME = ("time", "_strptime")  # it loads them when they are used; a confined process could not
NUMBERS = (int, float, complex, Fraction, Decimal)
CONTAINERS = (str, list, tuple, dict, set, frozenset, range, Counter, OrderedDict, defaultdict, deque)
TIMES = (date, datetime, timedelta)
FORMATS = {"format", "format_map"}  # their texts walk attributes: "{0.__class__}"
NOT_ATTRIBUTES = FORMATS | {"encode"}  # codecs are modules that are looked up and loaded by name
MORE_ATTRIBUTES = {"args", "prec", "rounding", "cache_info", "cache_clear"}


class Refused(Exception):
    """The code says something that it may not. The text is for the model."""


class Flood(BaseException):
    """The output is longer than MAX_OUTPUT_CHARS. No Exception, so that `except Exception` does not catch it."""


def _members(name: str) -> dict[str, Any]:
    module, listed = importlib.import_module(name), MODULES[name]
    every = [member for member in dir(module) if not member.startswith("_")] if listed == "*" else listed.split()
    return {member: getattr(module, member) for member in every}


class Rules:
    """The rules for code that may import `modules`, of which it sees the listed functions. KeyError for others."""

    def __init__(self, modules: list[str]) -> None:
        self.modules = {name: SimpleNamespace(**_members(name)) for name in modules}
        for name in FOR_DATETIME:
            importlib.import_module(name)
        types = (*NUMBERS, *CONTAINERS, *TIMES)
        public = {name for kind in types for name in dir(kind) if not name.startswith("_")}
        members = {name for module in self.modules.values() for name in vars(module)}
        self.attributes = (public | members | MORE_ATTRIBUTES) - NOT_ATTRIBUTES

    def parse(self, code: str) -> ast.Module:
        """The syntax tree of code that keeps the rules. Raises Refused, SyntaxError and what deep nesting raises."""
        if len(code) > MAX_CODE_CHARS:
            raise Refused(f"the code has {len(code)} characters; it may have {MAX_CODE_CHARS}")
        tree = ast.parse(code, CODE)
        for node in ast.walk(tree):
            self._check(node)
        return tree

    def _check(self, node: ast.AST) -> None:
        if type(node) not in NODES:
            raise Refused(f"{type(node).__name__} is not available{_line(node)}")
        for name in _names(node):
            if name.startswith("__"):
                raise Refused(f"the name {name!r} is not available{_line(node)}")
        if isinstance(node, ast.Attribute) and node.attr not in self.attributes:
            hint = "; use an f-string" if node.attr in FORMATS else ""
            raise Refused(f"the attribute {node.attr!r} is not available{_line(node)}{hint}")
        for name in _imported(node):
            if name not in self.modules:
                there = ", ".join(self.modules) or "none"
                raise Refused(f"the module {name!r} is not available{_line(node)}; there are: {there}")

    def namespace(self, output: Output) -> dict[str, Any]:
        """The globals that the code starts with."""

        def give(name: str, *_others: Any) -> SimpleNamespace | None:
            # For FOR_DATETIME it is asked too, whose answer is not used.
            return self.modules.get(name)

        builtins_allowed = {name: getattr(builtins, name) for name in BUILTINS.split()}
        return {"__builtins__": {**builtins_allowed, "print": output.print, "__import__": give}, "__name__": "code"}


def _names(node: ast.AST) -> list[str]:
    """Every identifier that stands in a node itself."""
    fields = (value for _, value in ast.iter_fields(node) if not isinstance(node, ast.Constant))
    flat = (item for value in fields for item in (value if isinstance(value, list) else [value]))
    return [item for item in flat if isinstance(item, str)]


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return ["." * node.level + (node.module or "")]
    return [name.name for name in node.names] if isinstance(node, ast.Import) else []


def _line(node: ast.AST) -> str:
    line = getattr(node, "lineno", None)
    return "" if line is None else f" (line {line})"


class Output:
    """What the code printed, up to MAX_OUTPUT_CHARS."""

    def __init__(self) -> None:
        self.text = ""

    def print(self, *values: Any, sep: str | None = " ", end: str | None = "\n", flush: bool = False) -> None:
        """Python's print, to here."""
        self.text += (" " if sep is None else sep).join(map(str, values)) + ("\n" if end is None else end)
        if len(self.text) > MAX_OUTPUT_CHARS:
            self.text = self.text[:MAX_OUTPUT_CHARS]
            raise Flood


def run(code: str, rules: Rules, output: Output) -> None:
    """Run code that keeps the rules; like a console it shows what its last line is worth. Raises what that raises."""
    tree = rules.parse(code)
    namespace = rules.namespace(output)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, CODE, "exec", dont_inherit=True), namespace)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), CODE, "eval", dont_inherit=True), namespace)
        if value is not None:
            output.print(repr(value))

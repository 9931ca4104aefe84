# SPDX-License-Identifier: BSD-3-Clause
"""JSON from a file.  Whatever is wrong with it is one sentence that names the file and the place."""
import json


class Unreadable(Exception):
    """Its text is for the person who gave us the file."""


def _no_constant(name):
    raise ValueError(f"{name} is no number of JSON")


def load(path):
    """The document in a file."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file, parse_constant=_no_constant)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    except ValueError as error:  # of JSON, and of UTF-8
        raise Unreadable(f"{path}: not JSON: {error}") from error


def _kind(value):
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list",
             dict: "an object", type(None): "null"}
    return names[type(value)]


def _refuse(at, expected, value):
    raise Unreadable(f"{at}: expected {expected}, found {_kind(value)}")


# A shape is a function of a value and of its place; it raises Unreadable.

def text(value, at):
    if not isinstance(value, str):
        _refuse(at, "a text", value)


def flag(value, at):
    if not isinstance(value, bool):
        _refuse(at, "true or false", value)


def number(value, at):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        _refuse(at, "a number", value)


def count(value, at):
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(at, "a whole number", value)
    if value < 0:
        raise Unreadable(f"{at}: expected a whole number, not below zero, found {value}")


def list_of(shape):
    def check(value, at):
        if not isinstance(value, list):
            _refuse(at, "a list", value)
        for i, element in enumerate(value):
            shape(element, f"{at}[{i}]")
    return check


def nullable(shape):
    def check(value, at):
        if value is not None:
            shape(value, at)
    return check


class optional:  # pylint: disable=invalid-name,too-few-public-methods
    """A member that may be left out."""

    def __init__(self, shape):
        self.shape = shape


def record(**members):
    """An object with these members; it may have others, which a later version adds."""
    def check(value, at):
        if not isinstance(value, dict):
            _refuse(at, "an object", value)
        for name, shape in members.items():
            left_out = isinstance(shape, optional)
            if name in value:
                (shape.shape if left_out else shape)(value[name], f"{at}.{name}")
            elif not left_out:
                raise Unreadable(f"{at}: '{name}' is missing")
    return check

"""Checker for the words of comments, docstrings, messages and pages; part of `make lint`.

CONTRIBUTING.md gives the rule. Usage: `scripts/words.py [PATH...]`; without a path the script reads
the whole checkout. A finding is one line: FILE:LINE and the reason. Any finding makes the exit code
1.
"""

import ast
import io
import itertools
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PLACES = (
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    "cc",
    "crates",
    "data",
    "docs",
    "examples",
    "packages",
    "scripts",
    "studies",
    "tests",
    "validation",
)
SUFFIXES = {".py", ".rs", ".c", ".h", ".md", ".toml", ".sh"}
EXEMPT = {"crates/cc/src/bindings.rs", "scripts/words.py", "tests/repository/test_words.py"}
"""Files that are not checked: a generated file, and the two files that name the banned words."""
SHORTEST = 4
"""Smallest number of words in a doc comment."""
LONGEST_LINE = 120
"""Upper limit on a line of Markdown in characters; tables, code and lines without a space may be
longer.
"""

OPENINGS = """
about above after against along among around as at before below between by during for from in
into it of off on onto over than that these this those through till to toward towards under
until up upon what when where wherever which who whom whose with within without
"""
"""Words that may not open a doc comment, as a noun or an imperative is missing then."""

BANNED = {
    "whoever": "name the actor",
    "nobody": "name the actor (no caller, no user, no process)",
    "somebody": "name the actor",
    "someone": "name the actor",
    "anybody": "name the actor",
    "everybody": "name the actors",
    "anew": "again",
    "beside": "in addition to, next to, or compared with",
    "lest": "so that ... not",
    "thereof": "its",
    "wherefore": "so",
    "whence": "from which",
    "of whom": "name the person or program",
    "of what": "name the thing",
    "comes to": "is, equals, amounts to",
    "come to": "are, equal, amount to",
    "came to": "was, equalled, amounted to",
    "is worth": "has the value, yields",
    "are worth": "have the value, yield",
    "was worth": "had the value, yielded",
    "were worth": "had the value, yielded",
}
"""Words that the project does not use, and the words to write instead."""

BANNED_WORD = re.compile(
    r"\b(" + "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in BANNED) + r")\b",
    re.IGNORECASE,
)
CODE_SPAN = re.compile(r"``[^`]+``|`[^`\n]+`")
WORD = re.compile(r"[^\W_][\w'./%-]*")
RUST_TOKEN = re.compile(
    r'(?P<raw>r(#*)".*?"\2)|(?P<text>"(?:\\.|[^"\\])*")|(?P<block>/\*.*?\*/)|(?P<line>//[^\n]*)|\'(?:\\.[^\']*|[^\\\'])\'',
    re.DOTALL,
)


class Passage(NamedTuple):
    """Passage of prose: its first line (from 1), its text, and whether it documents an item."""

    line: int
    text: str
    documents: bool


def main(arguments: list[str]) -> int:
    """Print the findings in files or directories; return the exit code."""
    places = [Path(argument).resolve() for argument in arguments] or [
        ROOT / place for place in PLACES
    ]
    findings = [finding for place in places for file in files_of(place) for finding in check(file)]
    print("\n".join(findings), end="\n" if findings else "")
    if findings:
        print(
            f'{len(findings)} findings; CONTRIBUTING.md says the rule under "Words"',
            file=sys.stderr,
        )
    return 1 if findings else 0


def files_of(place: Path) -> list[Path]:
    """Return the files with prose below a directory, sorted; for a file, only that file."""
    if place.is_file():
        return [place]
    files = (file for file in place.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    hidden = {"target", ".venv", "__pycache__", "damaged", "linux"}
    return sorted(
        file
        for file in files
        if not hidden.intersection(file.relative_to(place).parts[:-1]) or "skyhop" in file.parts
    )


def check(file: Path) -> list[str]:
    """Return the findings in one file, in the order of lines."""
    name = str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else str(file)
    if name in EXEMPT:
        return []
    text = file.read_text(encoding="utf-8")
    found = [problem for passage in passages(file.suffix, text) for problem in problems(passage)]
    if file.suffix == ".md":
        found += long_lines(text)
    return [f"{name}:{line}: {reason}" for line, reason in sorted(set(found))]


def passages(suffix: str, text: str) -> Iterator[Passage]:
    """Split the text of a file with that suffix into passages of prose."""
    match suffix:
        case ".py":
            yield from python_passages(text)
        case ".rs" | ".c" | ".h":
            yield from rust_passages(text)
        case ".md":
            yield from markdown_passages(text)
        case ".toml" | ".sh":
            yield from comment_passages(text)


def python_passages(text: str) -> Iterator[Passage]:
    """Yield Python's docstrings, comments, and other strings that contain spaces."""
    tree = ast.parse(text)
    documenting = set()
    for string in documentation(tree):
        documenting.add(id(string))
        yield Passage(string.lineno, str(string.value), documents=True)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documenting
            and " " in node.value
        ):
            yield Passage(node.lineno, node.value, documents=False)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield Passage(token.start[0], token.string.lstrip("#! "), documents=False)


def documentation(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the string nodes that document a module, a class, a function or an assignment."""
    for node in ast.walk(tree):
        body = (
            node.body
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            else []
        )
        for before, statement in itertools.pairwise([None, *body]):
            documents = before is None or isinstance(before, ast.Assign | ast.AnnAssign)
            value = statement.value if isinstance(statement, ast.Expr) else None
            if documents and isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value


def rust_passages(text: str) -> Iterator[Passage]:
    """Yield doc comments (each as one passage), comments and messages of Rust or C."""
    pending: list[str] = []
    first = last = 0
    for token in RUST_TOKEN.finditer(text):
        line = text.count("\n", 0, token.start()) + 1
        comment = token["line"]
        doc = re.match(r"//[/!] ?(?!/)", comment) if comment else None
        if pending and (not doc or line != last + 1):
            yield Passage(first, "\n".join(pending), documents=True)
            pending = []
        if doc and comment:
            first = first if pending else line
            last = line
            pending.append(comment[doc.end() :])
        elif comment:
            yield Passage(line, comment[2:], documents=False)
        elif token["block"]:
            yield Passage(line, token["block"], documents=False)
        elif (message := token["text"] or token["raw"]) and " " in message:
            yield Passage(line, message, documents=False)
    if pending:
        yield Passage(first, "\n".join(pending), documents=True)


def markdown_passages(text: str) -> Iterator[Passage]:
    """Yield the lines of Markdown outside code blocks, each as a passage."""
    for line, content in outside_code(text):
        yield Passage(line, content, documents=False)


def comment_passages(text: str) -> Iterator[Passage]:
    """Yield the lines of TOML and shell that contain prose: comments, and values with spaces."""
    for line, content in enumerate(text.splitlines(), 1):
        yield Passage(line, content, documents=False)


def outside_code(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines of Markdown outside code blocks."""
    fenced = False
    for line, content in enumerate(text.splitlines(), 1):
        if content.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and not content.startswith("    "):
            yield line, content


def problems(passage: Passage) -> Iterator[tuple[int, str]]:
    """Yield line number and reason of each fault in a passage."""
    prose = CODE_SPAN.sub(lambda span: "\n" * span[0].count("\n") + "code", passage.text)
    for word in BANNED_WORD.finditer(prose):
        key = " ".join(word[0].lower().split())
        yield passage.line + prose.count("\n", 0, word.start()), f'"{word[0]}": {BANNED[key]}'
    if passage.documents:
        yield from problems_of_opening(passage.line, prose)


def problems_of_opening(line: int, prose: str) -> Iterator[tuple[int, str]]:
    """Yield the faults in a doc comment's length and first word."""
    words = WORD.findall(re.sub(r"[\[\]]", "", prose))
    if len(words) < SHORTEST:
        fault = "say what it is, its unit and its source, or remove it"
        yield line, f"doc comment of {len(words)} words: {fault}"
    if words and words[0].lower() in OPENINGS.split():
        yield line, f'doc comment opens with "{words[0]}": begin with a noun or an imperative'


def long_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of Markdown prose that are too long, with their numbers."""
    for line, content in outside_code(text):
        if len(content) > LONGEST_LINE and not content.startswith("|") and " " in content.strip():
            yield line, f"line of {len(content)} characters: at most {LONGEST_LINE}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

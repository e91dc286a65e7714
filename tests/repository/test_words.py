"""Findings of scripts/words.py in planted examples, and none in good ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import words

PYTHON = '''"""Reader of run directories."""


class Agent:
    """A node's."""


LIMIT = 3
"""Those that do."""


def pump() -> None:
    """Move the packets of one direction, whoever
    sends them.
    """
    raise ValueError("there is nobody to ask")  # made anew
'''
RUST = """//! Counts of packets and octets by direction.

/// Those of both.
pub fn plus() {}

/// The sum of two counts.
///
/// It has one row per reason.
pub fn sum() -> &'static str { "this comes to nothing" }

pub const LIFETIME: &'static str = "beside"; // one word is no message
"""
MARKDOWN = f"""# A page

`whoever` is code. Somebody is not.

    nobody is code, too

```
nobody
```

| {"a long row of a table " * 8} |

{"A long line. " * 10}
"""


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("agent.py", PYTHON, [5, 9, 9, 13, 16, 16]),
        ("counts.rs", RUST, [3, 3, 9]),
        ("page.md", MARKDOWN, [3, 13]),
        ("keys.toml", 'a = 1  # what it is worth\nnote = "as whoever"\n', [1, 2]),
        ("rate.h", "/* The rate,\n * lest it ends. */\n", [2]),
    ],
)
def test_planted_faults_are_found_on_their_lines(
    tmp_path: Path, name: str, content: str, lines: list[int]
) -> None:
    (tmp_path / name).write_text(content)
    findings = words.check(tmp_path / name)
    assert [int(finding.split(":")[1]) for finding in findings] == lines, findings


def test_a_finding_says_where_and_what_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "counts.rs"
    file.write_text("/// Those of both.\npub fn plus() {}\n")
    assert words.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{file}:1: doc comment of 3 words: say what it is, its unit and its source, or remove it",
        f'{file}:1: doc comment opens with "Those": begin with a noun or an imperative',
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Element-wise sum of the counts.",
        "Bytes of each segment taken by TCP options (reduces the effective MSS).",
        "Whether the path has a return direction.",
        "Return the runs that `whoever` started.",
    ],
)
def test_plain_words_pass(tmp_path: Path, text: str) -> None:
    (tmp_path / "good.rs").write_text(f"/// {text}\npub fn item() {{}}\n")
    (tmp_path / "good.py").write_text(f'"""{text}"""\n')
    assert words.main([str(tmp_path)]) == 0

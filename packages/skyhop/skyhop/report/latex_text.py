r"""Text as LaTeX code, which pdfLaTeX prints without packages in its default encoding (OT1)."""

from __future__ import annotations

import re
import unicodedata

_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
    "`": r"\`{}", "\N{ZERO WIDTH NON-JOINER}": "{}", "\N{ZERO WIDTH SPACE}": r"\hspace{0pt}",
    "\N{MODIFIER LETTER TURNED COMMA}": "`", "\N{MODIFIER LETTER APOSTROPHE}": "'",
    "\N{EN DASH}": "--", "\N{EM DASH}": "---", "\N{HORIZONTAL ELLIPSIS}": r"\ldots{}",
    "\N{MULTIPLICATION SIGN}": r"$\times$", "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{MICRO SIGN}": r"$\mu$", "\N{INFINITY}": r"$\infty$",
    "\N{DEGREE SIGN}": r"$^\circ$", "\N{MINUS SIGN}": "$-$", "\N{ALMOST EQUAL TO}": r"$\approx$",
    "\N{LESS-THAN OR EQUAL TO}": r"$\leq$", "\N{GREATER-THAN OR EQUAL TO}": r"$\geq$",
    "\N{RIGHTWARDS ARROW}": r"$\rightarrow$", "\N{SUPERSCRIPT TWO}": "$^2$",
    "\N{SUPERSCRIPT THREE}": "$^3$",
    "\N{LATIN SMALL LETTER SHARP S}": r"\ss{}",
    "\N{LATIN SMALL LETTER AE}": r"\ae{}", "\N{LATIN CAPITAL LETTER AE}": r"\AE{}",
    "\N{LATIN SMALL LIGATURE OE}": r"\oe{}", "\N{LATIN CAPITAL LIGATURE OE}": r"\OE{}",
    "\N{LATIN SMALL LETTER O WITH STROKE}": r"\o{}",
    "\N{LATIN CAPITAL LETTER O WITH STROKE}": r"\O{}",
    "\N{LATIN SMALL LETTER L WITH STROKE}": r"\l{}",
    "\N{LATIN CAPITAL LETTER L WITH STROKE}": r"\L{}",
    "\N{LATIN SMALL LETTER DOTLESS I}": r"\i{}",
    "\N{LATIN SMALL LETTER D WITH STROKE}": "d", "\N{LATIN CAPITAL LETTER D WITH STROKE}": "D",
    "\N{LATIN SMALL LETTER ETH}": "d", "\N{LATIN CAPITAL LETTER ETH}": "D",
    "\N{LATIN SMALL LETTER THORN}": "th", "\N{LATIN CAPITAL LETTER THORN}": "Th",
}  # fmt: skip
"""LaTeX for characters that are special in LaTeX or missing in its fonts."""

_ACCENTS = {
    "\N{COMBINING GRAVE ACCENT}": "`", "\N{COMBINING ACUTE ACCENT}": "'",
    "\N{COMBINING CIRCUMFLEX ACCENT}": "^", "\N{COMBINING TILDE}": "~",
    "\N{COMBINING DIAERESIS}": '"', "\N{COMBINING RING ABOVE}": "r", "\N{COMBINING CARON}": "v",
    "\N{COMBINING BREVE}": "u", "\N{COMBINING MACRON}": "=", "\N{COMBINING DOT ABOVE}": ".",
    "\N{COMBINING DOUBLE ACUTE ACCENT}": "H", "\N{COMBINING CEDILLA}": "c",
    "\N{COMBINING COMMA BELOW}": "c", "\N{COMBINING DOT BELOW}": "d",
}  # fmt: skip
r"""Command of each accent; letters are printed without others, and with one at most."""

_CODE = _SPECIAL | {
    unicodedata.lookup(f"GREEK {'SMALL' if name.islower() else 'CAPITAL'} LETTER {name.upper()}"):
    rf"$\{name.replace('lamda', 'lambda').replace('Lamda', 'Lambda')}$"
    for name in [
        "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa",
        "lamda", "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "phi", "chi", "psi", "omega",
        "Gamma", "Delta", "Theta", "Lamda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega",
    ]
}  # fmt: skip
"""LaTeX for characters that it does not print as they are, with Greek letters."""


def escaped(text: str) -> str:
    """Return LaTeX code, on one line, that prints the text; other scripts stay as they are."""
    # LaTeX joins two hyphens to a dash.
    single = re.sub("-(?=-)", "-\N{ZERO WIDTH NON-JOINER}", " ".join(text.split()))
    return "".join(map(_letter, single))


def row_start(code: str) -> str:
    r"""Return code that may follow `\\`, which takes a bracket or star for an argument."""
    return f"{{}}{code}" if code.startswith(("[", "*")) else code


def base_letter(letter: str) -> str:
    """Return a letter without its accents."""
    return unicodedata.normalize("NFD", letter)[0]


def _letter(letter: str) -> str:
    base, *marks = list(unicodedata.normalize("NFD", letter))
    if letter in _CODE or not (base.isascii() and base.isalpha()):
        return _CODE.get(letter, letter)
    # LaTeX misplaces a second accent.
    accent = next(filter(None, map(_ACCENTS.get, marks)), None)
    return rf"\{accent}{{{base}}}" if accent else base

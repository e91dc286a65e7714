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
    "\N{NOT EQUAL TO}": r"$\neq$", "\N{IDENTICAL TO}": r"$\equiv$", "\N{TILDE OPERATOR}": r"$\sim$",
    "\N{MUCH LESS-THAN}": r"$\ll$", "\N{MUCH GREATER-THAN}": r"$\gg$",
    "\N{PROPORTIONAL TO}": r"$\propto$", "\N{N-ARY SUMMATION}": r"$\sum$",
    "\N{PARTIAL DIFFERENTIAL}": r"$\partial$", "\N{INCREMENT}": r"$\Delta$",
    "\N{PRIME}": r"$\prime$", "\N{DOUBLE PRIME}": r"$\prime\prime$",
    "\N{RIGHTWARDS ARROW}": r"$\rightarrow$", "\N{LEFTWARDS ARROW}": r"$\leftarrow$",
    "\N{LEFT RIGHT ARROW}": r"$\leftrightarrow$", "\N{RIGHTWARDS DOUBLE ARROW}": r"$\Rightarrow$",
    "\N{SUPERSCRIPT MINUS}": "$^-$", "\N{SUBSCRIPT MINUS}": "$_-$",
    "\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}": "``",
    "\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}": "''",
    "\N{DOUBLE LOW-9 QUOTATION MARK}": ",,",
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

_LATIN = {
    "Alpha": "A", "Beta": "B", "Epsilon": "E", "Zeta": "Z", "Eta": "H", "Iota": "I", "Kappa": "K",
    "Mu": "M", "Nu": "N", "Omicron": "O", "Rho": "P", "Tau": "T", "Chi": "X", "omicron": "o",
}  # fmt: skip
"""Latin letters in place of the Greek ones that LaTeX lacks because they look the same."""


def _greek(name: str) -> str:
    """Return the Greek letter of a name; of a capital, if the name begins with one."""
    size = "SMALL" if name.islower() else "CAPITAL"
    return unicodedata.lookup(f"GREEK {size} LETTER {name.upper()}")


_CODE = _SPECIAL | {
    _greek(name): rf"$\{name.replace('lamda', 'lambda').replace('Lamda', 'Lambda')}$"
    for name in [
        "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa",
        "lamda", "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi",
        "omega",
        "Gamma", "Delta", "Theta", "Lamda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega",
    ]
} | {_greek(name): letter for name, letter in _LATIN.items()} | {
    "\N{GREEK SMALL LETTER FINAL SIGMA}": r"$\varsigma$",
} | {
    unicodedata.lookup(f"{place} {digit}"): f"${sign}{value}$"
    for place, sign in (("SUPERSCRIPT", "^"), ("SUBSCRIPT", "_"))
    for value, digit in enumerate(
        ["ZERO", "ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "NINE"]
    )
}  # fmt: skip
"""LaTeX for characters that it does not print as they are, with Greek letters and raised digits."""

_LETTER = re.compile("[^\u0300-\u036f][\u0300-\u036f]*")
"""Character with the accents that follow it."""


def escaped(text: str) -> str:
    """Return LaTeX code, on one line, that prints the text; other scripts stay as they are."""
    # LaTeX joins two hyphens to a dash, and two apostrophes to a quotation mark.
    single = re.sub("([-'])(?=\\1)", "\\1\N{ZERO WIDTH NON-JOINER}", " ".join(text.split()))
    return "".join(map(_letter, _LETTER.findall(single)))


def row_start(code: str) -> str:
    r"""Return code that may follow `\\`, which takes a bracket or star for an argument."""
    return f"{{}}{code}" if code.startswith(("[", "*")) else code


def base_letter(letter: str) -> str:
    """Return a letter without its accents."""
    return unicodedata.normalize("NFD", letter)[0]


def _letter(letter: str) -> str:
    """Return the code of a character and its accents; none of a control character."""
    base, *marks = list(unicodedata.normalize("NFD", letter))
    if unicodedata.category(base) == "Cc":
        return ""
    if letter in _CODE or not (base.isascii() and base.isalpha()):
        return _CODE.get(letter, _CODE.get(base, letter))
    # LaTeX misplaces a second accent.
    accent = next(filter(None, map(_ACCENTS.get, marks)), None)
    return rf"\{accent}{{{base}}}" if accent else base

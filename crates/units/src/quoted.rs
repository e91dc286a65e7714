//! Quotation of input in messages.

use std::fmt::{self, Write};

/// Largest number of characters of a text that are quoted.
const MOST: usize = 80;

/// Input text as messages quote it: in one line, without characters that act on a terminal, truncated if long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quoted<'t>(pub &'t str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for letter in self.0.chars().take(MOST) {
            match letter {
                '\n' | '\r' | '\t' => write!(f, "{}", letter.escape_default())?,
                _ => write_plain(f, letter)?,
            }
        }
        if self.0.chars().nth(MOST).is_some() {
            f.write_char('…')?;
        }
        f.write_char('"')
    }
}

/// Write a character, or its code if it would act on a terminal or change how the characters around it are shown.
///
/// # Errors
/// Errors of the writer `to`.
pub fn write_plain(to: &mut impl Write, letter: char) -> fmt::Result {
    match letter {
        _ if letter.is_control() => write!(to, "\\x{:02x}", letter as u32),
        _ if is_format(letter) => write!(to, "{}", letter.escape_unicode()),
        _ => to.write_char(letter),
    }
}

/// Whether a character is shown as itself: it neither acts on a terminal nor changes how others are shown.
pub fn is_shown(letter: char) -> bool {
    !letter.is_control() && !is_format(letter)
}

/// Format characters (Cf) of Unicode 16, including directional marks, and separators of lines (Zl, Zp).
fn is_format(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2064}'
            | '\u{2066}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0001}'
            | '\u{e0020}'..='\u{e007f}'
    )
}

//! What was read, in messages about it.

use std::fmt::{self, Write};

/// Letters of a longer text that are quoted.
const MOST: usize = 80;

/// A text as messages quote it: in one line, without what would act on a terminal, and of a long one the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quoted<'t>(pub &'t str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for letter in self.0.chars().take(MOST) {
            match letter {
                '\n' | '\r' | '\t' => write!(f, "{}", letter.escape_default())?,
                _ if letter.is_control() => write!(f, "\\x{:02x}", letter as u32)?,
                _ => f.write_char(letter)?,
            }
        }
        if self.0.chars().nth(MOST).is_some() {
            f.write_char('…')?;
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_written_out() {
        assert_eq!(Quoted("Zürich").to_string(), "\"Zürich\"");
        assert_eq!(Quoted("a\n\x1b[2J\u{9b}").to_string(), "\"a\\n\\x1b[2J\\x9b\"");
        assert_eq!(Quoted(&"é".repeat(200)).to_string().chars().count(), MOST + 3);
    }
}

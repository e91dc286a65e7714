//! Messages in one line, and the places in files that they name.

use skyhop_units::write_plain;

/// End of every error that refuses a run for its size.
pub const OR_FORCE_SIZE: &str = "or say --force-size (run.force_size = true)";

/// Number with thousands separators: "2,000,000".
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let places = digits.len();
    let with_comma = |(place, digit)| {
        let comma = if place > 0 && usize::is_multiple_of(places - place, 3) { "," } else { "" };
        format!("{comma}{digit}")
    };
    digits.chars().enumerate().map(with_comma).collect()
}

/// Longest message in characters; lists of allowed names stay below.
const LONGEST: usize = 1_000;

/// Message in one line, without characters that act on a terminal. If the message is longer than `LONGEST`, because
/// it quotes a file, its middle is left out.
pub fn one_line(message: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let count = line.chars().count();
    let mut plain = String::with_capacity(line.len());
    for (at, letter) in line.chars().enumerate() {
        if count > LONGEST && (LONGEST / 2..count - LONGEST / 4).contains(&at) {
            if at == LONGEST / 2 {
                plain.push('…');
            }
        } else {
            let _ = write_plain(&mut plain, letter);
        }
    }
    plain
}

/// Line of the byte `offset` in a text, counted from 1.
pub fn line_at(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_message_becomes_one_line() {
        let said = [
            "invalid type: map, expected a sequence at line 1 column 0",
            "unknown variant `stk`, expected one of `isl`, `geo`",
        ];
        skyhop_needs::fuzz::Trial::of_text("messages of readers", said).run(|bytes| {
            let text = String::from_utf8_lossy(bytes);
            let is_whole = text.trim().is_empty() || said.contains(&&*text);
            if is_whole { Ok(()) } else { Err(one_line(&text)) }
        });
    }

    #[test]
    fn lines_count_from_one() {
        assert_eq!([0, 1, 2, 9].map(|offset| line_at("a\nb\n", offset)), [1, 1, 2, 3]);
    }
}

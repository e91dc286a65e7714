//! Messages in one line, and the places in files that they name.

use skyhop_units::{did_you_mean, write_plain};

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

/// Message of serde with the allowed names that the user may have meant by an unknown name in it.
pub fn with_hint(message: &str) -> String {
    let hinted = ["unknown variant `", "unknown field `"].iter().find_map(|begin| {
        let name_at = message.find(begin)? + begin.len();
        let end = name_at + message[name_at..].find("`, expected ")?;
        let known = message[end + 1..].split('`').skip(1).step_by(2);
        let hint = did_you_mean(&message[name_at..end], known);
        Some(format!("{}`{hint}{}", &message[..end], &message[end + 1..]))
    });
    hinted.unwrap_or_else(|| message.to_owned())
}

/// Message without the "(os error N)" that Rust appends to the texts of system errors.
pub fn without_numbers(message: &str) -> String {
    let mut parts = message.split(" (os error ");
    let begin = parts.next().unwrap_or_default().to_owned();
    parts.fold(begin, |text, part| text + part.split_once(')').map_or(part, |(_, rest)| rest))
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
    fn system_errors_lose_their_numbers() {
        let error = std::io::Error::from_raw_os_error(1);
        let message = format!("tcp_rmem: {error}; max_tcp: {error}, as (os error) is none");
        assert_eq!(
            without_numbers(&message),
            "tcp_rmem: Operation not permitted; max_tcp: Operation not permitted, as (os error) is none"
        );
    }

    #[test]
    fn serdes_messages_about_unknown_names_suggest_known_ones() {
        for (message, hinted) in [
            (
                "unknown variant `STK`, expected one of `isl`, `stk`",
                "unknown variant `STK` (did you mean stk?), expected one of `isl`, `stk`",
            ),
            (
                "flow: unknown field `form`, expected `from` or `to`",
                "flow: unknown field `form` (did you mean from?), expected `from` or `to`",
            ),
            ("unknown field `a`, there are no fields", "unknown field `a`, there are no fields"),
            ("unknown field `", "unknown field `"),
            ("unknown field `a`, expected ", "unknown field `a`, expected "),
        ] {
            assert_eq!(with_hint(message), hinted);
            assert_eq!(with_hint(hinted), hinted);
        }
    }

    #[test]
    fn lines_count_from_one() {
        assert_eq!([0, 1, 2, 9].map(|offset| line_at("a\nb\n", offset)), [1, 1, 2, 3]);
    }
}

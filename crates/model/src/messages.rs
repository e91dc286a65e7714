//! Messages about TOML and JSON files in the terms of their authors, not of the parsers.

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

/// Prefixes of the parsers' messages, and the message that replaces each.
const BEGINNINGS: [(&str, &str); 15] = [
    ("EOF while parsing", "it ends too early; is it whole?"),
    ("expected value", "expected a value"),
    ("expected ident", "expected true, false or null"),
    ("trailing characters", "there is text after the end"),
    ("recursion limit exceeded", "it is nested too deeply"),
    ("control character (", "a text holds a control character"),
    ("invalid number", "a number is malformed"),
    ("integer number overflowed", "a number is too large, or has no digits"),
    ("string values must be quoted", "put text in quotes, such as \"20 ms\""),
    ("invalid boolean", "expected true or false; put text in quotes, such as \"20 ms\""),
    ("invalid basic string", "a text has no closing quote"),
    ("invalid literal string", "a text has no closing quote"),
    ("invalid key-value pair", "expected KEY = VALUE"),
    ("key with no value", "expected KEY = VALUE"),
    ("unexpected key or value", "there is text after the value; expected a new line"),
];

/// Names by which serde says what was found, and their replacements.
const FOUND: [(&str, &str); 6] = [
    ("sequence", "a list"),
    ("map", "a table"),
    ("null", "nothing"),
    ("unit value", "nothing"),
    ("Option value", "nothing"),
    ("byte array", "bytes"),
];

/// Names by which serde says what was expected, and their replacements.
const EXPECTED: [(&str, &str); 10] = [
    ("a sequence", "a list"),
    ("a map", "a table"),
    ("a boolean", "true or false"),
    ("a string", "text"),
    ("a borrowed string", "text"),
    ("a character", "one character"),
    ("unit", "nothing"),
    ("any valid TOML value", "a value"),
    ("any valid JSON value", "a value"),
    ("string or map", "text or a table"),
];

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

/// Message of a TOML or JSON parser in plain words: it speaks of lists, tables and numbers, not of sequences, maps and
/// u64. Other messages stay as they are.
pub fn plain_error(message: &str) -> String {
    let message = one_line(message);
    let (what, place) = split_place(&message);
    let what = in_plain_words(what).unwrap_or_else(|| what.to_owned());
    match place {
        Some((line, column)) => format!("{what} (line {line}, column {column})"),
        None => what,
    }
}

/// Split off the line and column that the JSON parser appends to a message.
fn split_place(message: &str) -> (&str, Option<(&str, &str)>) {
    let place = message.rsplit_once(" at line ").and_then(|(what, place)| {
        let (line, column) = place.split_once(" column ")?;
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        (is_number(line) && is_number(column)).then_some((what, line, column))
    });
    match place {
        Some((what, "0", _)) => (what, None),
        Some((what, line, column)) => (what, Some((line, column))),
        None => (message, None),
    }
}

fn in_plain_words(what: &str) -> Option<String> {
    if let Some(rest) = what.strip_prefix("invalid type: ").or(what.strip_prefix("invalid value: "))
    {
        let (found, expected) = rest.rsplit_once(", expected ")?;
        if found.ends_with(" as i128") || found.ends_with(" as u128") {
            return Some(format!("{} is too large", quoted(found)?));
        }
        return Some(format!(
            "expected {}, not {}",
            expected_in_words(expected),
            found_in_words(found)
        ));
    }
    if let Some(rest) = what.strip_prefix("invalid length ") {
        let (count, expected) = rest.split_once(", expected ")?;
        return Some(format!("has {count} entries; expected {}", expected_in_words(expected)));
    }
    if let Some(rest) = what.strip_prefix("missing field ") {
        return Some(format!("the key {rest} is missing"));
    }
    if let Some(rest) = what.strip_prefix("duplicate field ") {
        return Some(format!("the key {rest} is given twice"));
    }
    if what == "duplicate key" {
        return Some("the same key is given twice".to_owned());
    }
    if let Some(rest) = what.strip_prefix("unknown field ") {
        return Some(format!("unknown key {}", or_none(rest)));
    }
    if let Some(rest) = what.strip_prefix("unknown variant ") {
        return Some(format!("there is no {}", or_none(rest)));
    }
    let replacement = BEGINNINGS.iter().find(|(begin, _)| what.starts_with(begin));
    replacement.map(|(_, instead)| (*instead).to_owned()).or_else(|| {
        let plain = what.replace("array table, expected `]`", "[[…]], expected `]]`");
        (plain != what).then_some(plain)
    })
}

/// Insert a semicolon: "`x`, expected one of `a`, `b`" becomes "`x`; expected one of `a`, `b`".
fn or_none(rest: &str) -> String {
    let pause = rest.replacen(", expected ", "; expected ", 1);
    pause.replacen(", there are no fields", "; there are none", 1).replacen(
        ", there are no variants",
        "; there are none",
        1,
    )
}

fn expected_in_words(expected: &str) -> String {
    if let Some((_, plain)) = EXPECTED.iter().find(|(reader, _)| *reader == expected) {
        return (*plain).to_owned();
    }
    match expected {
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => "a whole number, 0 or more".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        _ if expected.starts_with("struct ") || expected.starts_with("internally tagged enum ") => {
            "a table".to_owned()
        }
        _ if expected.starts_with("enum ") => "a word".to_owned(),
        _ => {
            let of_so_many = |begin| expected.strip_prefix(begin);
            match of_so_many("an array of length ").or(of_so_many("a tuple of size ")) {
                Some(count) => format!("a list of {count}"),
                None => expected.to_owned(),
            }
        }
    }
}

fn found_in_words(found: &str) -> String {
    if let Some((_, plain)) = FOUND.iter().find(|(reader, _)| *reader == found) {
        return (*plain).to_owned();
    }
    let number = quoted(found).filter(|_| !found.starts_with("string "));
    match (number, found.strip_prefix("string ")) {
        (Some(number), _) => number.to_owned(),
        (None, Some(text)) => format!("the text {text}"),
        (None, None) => found.to_owned(),
    }
}

/// Text between the backquotes of "integer `3`".
fn quoted(found: &str) -> Option<&str> {
    let (_, rest) = found.split_once('`')?;
    rest.split_once('`').map(|(inside, _)| inside)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::de::DeserializeOwned;

    use super::*;
    use crate::Relay;

    fn refused<T: DeserializeOwned>(json: &str) -> String {
        let error = serde_json::from_str::<T>(json).err().expect("it is wrong");
        plain_error(&error.to_string())
    }

    #[test]
    fn messages_of_parsers_become_plain() {
        type Table = BTreeMap<String, String>;
        for (said, expected) in [
            (refused::<Vec<u32>>("{}"), "expected a list, not a table (line 1, column 0)"),
            (refused::<Vec<u32>>("[1"), "it ends too early; is it whole? (line 1, column 2)"),
            (refused::<u32>("-1"), "expected a whole number, 0 or more, not -1 (line 1, column 2)"),
            (
                refused::<i64>("\"x\""),
                "expected a whole number, not the text \"x\" (line 1, column 3)",
            ),
            (refused::<f64>("null"), "expected a number, not nothing (line 1, column 4)"),
            (refused::<bool>("1.5"), "expected true or false, not 1.5 (line 1, column 3)"),
            (refused::<Table>("[]"), "expected a table, not a list (line 1, column 0)"),
            (refused::<Table>("{} 3"), "there is text after the end (line 1, column 4)"),
            (refused::<String>("3"), "expected text, not 3 (line 1, column 1)"),
            (refused::<[u8; 2]>("[1]"), "has 1 entries; expected a list of 2 (line 1, column 3)"),
            (
                refused::<Relay>("\"stk\""),
                "there is no `stk`; expected one of `isl`, `bent-pipe`, `access`, `geo` (line 1, column 5)",
            ),
        ] {
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn any_message_becomes_one_line() {
        let said = [
            "invalid type: map, expected a sequence at line 1 column 0",
            "unknown variant `stk`, expected one of `isl`, `geo`",
            "invalid length 1, expected an array of length 2 at line 1 column 3",
            "invalid value: integer `18446744073709551616 as u128`, expected i64",
        ];
        skyhop_needs::fuzz::Trial::of_text("messages of readers", said).run(|bytes| {
            let text = String::from_utf8_lossy(bytes);
            let is_whole = text.trim().is_empty() || said.contains(&&*text);
            if is_whole { Ok(()) } else { Err(plain_error(&text)) }
        });
    }

    #[test]
    fn messages_of_other_origin_stay_unchanged() {
        for said in
            ["\"ten\" does not begin with a number", "is 3 s; expected less", "a `b` at line x"]
        {
            assert_eq!(plain_error(said), said);
        }
        let once = plain_error("invalid type: map, expected a sequence");
        assert_eq!(
            (once.as_str(), plain_error(&once)),
            ("expected a list, not a table", once.clone())
        );
    }
}

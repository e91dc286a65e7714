//! Damage to valid files, as disks, editors, other programs and other versions cause it, and worse.

use std::collections::BTreeMap;
use std::iter;
use std::ops::Range;
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::select;
use serde::Deserialize;

/// Tables of damage in tests/damage.toml, which the Python trials read too.
static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let text = include_str!("../../../../tests/damage.toml");
    toml::from_str(text).expect("tests/damage.toml has every table")
});

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Tables {
    values: Vec<String>,
    rude: Vec<String>,
    rude_bytes: Vec<u8>,
    openers: Vec<String>,
    times: Vec<usize>,
    letters: Vec<String>,
    long_times: Vec<usize>,
    lengths: Vec<i64>,
    text: BTreeMap<ChangeKind, usize>,
    bytes: BTreeMap<ChangeKind, usize>,
}

impl Tables {
    fn rude(&self, place: Choice) -> &[u8] {
        let at = place.index(self.rude.len() + self.rude_bytes.len());
        match at.checked_sub(self.rude.len()) {
            Some(byte) => &self.rude_bytes[byte..=byte],
            None => self.rude[at].as_bytes(),
        }
    }

    /// Changes to a kind of file, each repeated by its weight.
    fn changes(&self, kind: Kind) -> Vec<ChangeKind> {
        let weights = if kind == Kind::Text { &self.text } else { &self.bytes };
        weights.iter().flat_map(|(kind, times)| iter::repeat_n(*kind, *times)).collect()
    }
}

/// Random choice, made independent of the number of alternatives.
#[derive(Debug, Clone, Copy)]
struct Choice(u32);

impl Choice {
    fn index(self, count: usize) -> usize {
        ((u64::from(self.0) * count as u64) >> 32) as usize
    }

    fn of<T>(self, choices: &[T]) -> &T {
        &choices[self.index(choices.len())]
    }
}

fn choice() -> impl Strategy<Value = Choice> {
    any::<u32>().prop_map(Choice)
}

/// Kind of a format: text or binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Bytes,
}

/// Damage to one file: a sample and the changes to it.
#[derive(Debug, Clone)]
pub(super) struct Damage {
    kind: Kind,
    sample: Choice,
    changes: Vec<Change>,
}

/// A change: its kind, its place, and random choices.
#[derive(Debug, Clone, Copy)]
struct Change {
    kind: ChangeKind,
    place: Choice,
    other: Choice,
    value: Choice,
}

/// Kinds of changes, by their names in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ChangeKind {
    // Changes of text.
    Value,
    Borrow,
    Digits,
    DropWord,
    RepeatWord,
    SwapWords,
    DropLine,
    RepeatLine,
    SwapLines,
    Rude,
    Nest,
    Long,
    // Changes of text and of binary files.
    Byte,
    Bit,
    Cut,
    // Changes of binary files.
    Length,
    DropPiece,
    RepeatPiece,
    MovePiece,
    Zeros,
    Splice,
}

impl Damage {
    /// Strategy of up to `most` changes of one of the samples; it shrinks to less damage.
    pub fn strategy(kind: Kind, most: usize) -> impl Strategy<Value = Self> {
        let change = (select(TABLES.changes(kind)), choice(), choice(), choice())
            .prop_map(|(kind, place, other, value)| Change { kind, place, other, value });
        (choice(), vec(change, 1..=most)).prop_map(move |(sample, changes)| Self {
            kind,
            sample,
            changes,
        })
    }

    /// Apply the damage and return the damaged file.
    pub fn of(&self, samples: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = self.sample.of(samples).clone();
        for change in &self.changes {
            if bytes.is_empty() {
                break;
            }
            match self.kind {
                Kind::Text => change.of_text(&mut bytes, samples),
                Kind::Bytes => change.of_bytes(&mut bytes, samples),
            }
        }
        bytes
    }
}

impl Change {
    fn of_text(self, bytes: &mut Vec<u8>, samples: &[Vec<u8>]) {
        match self.kind {
            ChangeKind::Value
            | ChangeKind::Borrow
            | ChangeKind::Digits
            | ChangeKind::DropWord
            | ChangeKind::RepeatWord => {
                let words = words(bytes);
                let Some(word) = self.one_of(&words) else { return };
                let text = bytes[word.clone()].to_vec();
                bytes.splice(word, self.in_place_of(&text, samples));
            }
            ChangeKind::SwapWords => swap(bytes, &words(bytes), self),
            ChangeKind::DropLine | ChangeKind::RepeatLine => {
                let line = self.one_of(&lines(bytes)).unwrap_or(0..0);
                let times = if matches!(self.kind, ChangeKind::DropLine) { 0 } else { 2 };
                let text = bytes[line.clone()].repeat(times);
                bytes.splice(line, text);
            }
            ChangeKind::SwapLines => swap(bytes, &lines(bytes), self),
            ChangeKind::Rude => self.insert(bytes, TABLES.rude(self.value)),
            ChangeKind::Nest => self.insert_many(bytes, &TABLES.openers, &TABLES.times),
            ChangeKind::Long => self.insert_many(bytes, &TABLES.letters, &TABLES.long_times),
            _ => self.of_bytes(bytes, samples),
        }
    }

    /// Replacement of a number or a word.
    fn in_place_of(self, text: &[u8], samples: &[Vec<u8>]) -> Vec<u8> {
        match self.kind {
            ChangeKind::Value => self.value.of(&TABLES.values).clone().into_bytes(),
            ChangeKind::Borrow => {
                let sample = self.other.of(samples);
                let words = words(sample);
                let word = words.get(self.value.index(words.len().max(1)));
                word.map_or_else(Vec::new, |word| sample[word.clone()].to_vec())
            }
            ChangeKind::Digits => {
                let digits = [
                    [b"-", text].concat(),
                    [text, b"0"].concat(),
                    [text, b"e9"].concat(),
                    [text, b"e-9"].concat(),
                    [text, b".5"].concat(),
                    [text, text].concat(),
                    text[..text.len() / 2].to_vec(),
                ];
                self.value.of(&digits).clone()
            }
            ChangeKind::RepeatWord => [text, b" ", text].concat(),
            _ => Vec::new(),
        }
    }

    fn of_bytes(self, bytes: &mut Vec<u8>, samples: &[Vec<u8>]) {
        let place = self.place.index(bytes.len());
        let piece = self.piece(bytes.len());
        match self.kind {
            ChangeKind::Byte => bytes[place] = self.value.index(256) as u8,
            ChangeKind::Bit => bytes[place] ^= 1 << self.value.index(8),
            ChangeKind::Cut => bytes.truncate(place),
            ChangeKind::Length => {
                let width = *self.other.of(&[1, 2, 4, 8]);
                let value = self.value.of(&TABLES.lengths);
                let (little, big) = (value.to_le_bytes(), value.to_be_bytes());
                let ends = [&little[..width], &big[8 - width..]];
                let number = ends[self.value.index(2 * TABLES.lengths.len()) % 2];
                bytes.iter_mut().skip(place).zip(number).for_each(|(byte, new)| *byte = *new);
            }
            ChangeKind::DropPiece => drop(bytes.drain(piece)),
            ChangeKind::RepeatPiece => {
                let twice = bytes[piece.clone()].repeat(2);
                bytes.splice(piece, twice);
            }
            ChangeKind::MovePiece => {
                let text = bytes.drain(piece).collect::<Vec<u8>>();
                let place = self.other.index(bytes.len() + 1);
                bytes.splice(place..place, text);
            }
            ChangeKind::Zeros => bytes[piece].fill(0),
            ChangeKind::Splice => {
                let sample = self.other.of(samples);
                let other = sample[self.piece(sample.len())].to_vec();
                bytes.splice(piece, other);
            }
            _ => {}
        }
    }

    fn insert(self, bytes: &mut Vec<u8>, new: &[u8]) {
        let place = self.place.index(bytes.len() + 1);
        bytes.splice(place..place, new.iter().copied());
    }

    /// Insert one of the texts, repeated.
    fn insert_many(self, bytes: &mut Vec<u8>, texts: &[String], times: &[usize]) {
        self.insert(bytes, self.value.of(texts).repeat(*self.other.of(times)).as_bytes());
    }

    fn one_of(self, parts: &[Range<usize>]) -> Option<Range<usize>> {
        (!parts.is_empty()).then(|| parts[self.place.index(parts.len())].clone())
    }

    /// Range of up to 64 bytes from the place on.
    fn piece(self, length: usize) -> Range<usize> {
        if length == 0 {
            return 0..0;
        }
        let begin = self.place.index(length);
        begin..length.min(begin + 1 + self.value.index(64))
    }
}

/// Exchange two of the parts.
fn swap(bytes: &mut Vec<u8>, parts: &[Range<usize>], change: Change) {
    if parts.is_empty() {
        return;
    }
    let (one, two) = (change.place.index(parts.len()), change.other.index(parts.len()));
    let (first, second) = (parts[one.min(two)].clone(), parts[one.max(two)].clone());
    if first.end > second.start {
        return;
    }
    let between = first.end..second.start;
    let swapped = [&bytes[second.clone()], &bytes[between], &bytes[first.clone()]].concat();
    bytes.splice(first.start..second.end, swapped);
}

/// Ranges of numbers and words: "-1.5e3", "icmp_seq", "Mbit".
fn words(bytes: &[u8]) -> Vec<Range<usize>> {
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let begin = at;
        let signed = matches!(bytes[at], b'-' | b'+' | b'.') && is_digit(at + 1);
        if signed || is_digit(at) {
            at += 1;
            while at < bytes.len() && matches!(bytes[at], b'0'..=b'9' | b'.' | b'e' | b'E') {
                let exponent = matches!(bytes[at], b'e' | b'E');
                let sign = matches!(bytes.get(at + 1), Some(b'-' | b'+'));
                if exponent && !is_digit(at + 1 + usize::from(sign)) {
                    break;
                }
                at += if exponent && sign { 2 } else { 1 };
            }
        } else {
            while at < bytes.len()
                && (bytes[at].is_ascii_alphabetic() || matches!(bytes[at], b'_' | 0x80..))
            {
                at += 1;
            }
        }
        if at > begin {
            found.push(begin..at);
        } else {
            at += 1;
        }
    }
    found
}

/// Ranges of the lines, line ends included.
fn lines(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut begin = 0;
    let line = |line: &[u8]| {
        begin += line.len();
        begin - line.len()..begin
    };
    bytes.split_inclusive(|byte| *byte == b'\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words_are_told_apart() {
        let text = b"rtt=-1.5e-3 ms, a_b 7;3e";
        let seen: Vec<&[u8]> = words(text).into_iter().map(|word| &text[word]).collect();
        assert_eq!(seen, [&b"rtt"[..], b"-1.5e-3", b"ms", b"a_b", b"7", b"3", b"e"]);
        assert_eq!(lines(b"ab\n\nc"), [0..3, 3..4, 4..5]);
    }

    #[test]
    fn parts_change_places() {
        let mut bytes = b"one two three".to_vec();
        let parts = words(&bytes);
        let (first, last) = (Choice(0), Choice(u32::MAX));
        let change =
            Change { kind: ChangeKind::SwapWords, place: first, other: last, value: first };
        swap(&mut bytes, &parts, change);
        assert_eq!(bytes, b"three two one");
    }
}

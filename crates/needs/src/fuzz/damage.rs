//! What is done to whole files: the damage that disks, editors, other programs and other versions do, and worse.

use std::collections::BTreeMap;
use std::iter;
use std::ops::Range;
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::select;
use serde::Deserialize;

/// What damage is made of: tests/damage.toml, which Python's trials read, too.
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
    text: BTreeMap<What, usize>,
    bytes: BTreeMap<What, usize>,
}

impl Tables {
    fn rude(&self, place: Place) -> &[u8] {
        let at = place.index(self.rude.len() + self.rude_bytes.len());
        match at.checked_sub(self.rude.len()) {
            Some(byte) => &self.rude_bytes[byte..=byte],
            None => self.rude[at].as_bytes(),
        }
    }

    /// The changes to a kind of file, each as often as it happens.
    fn changes(&self, kind: Kind) -> Vec<What> {
        let weights = if kind == Kind::Text { &self.text } else { &self.bytes };
        weights.iter().flat_map(|(what, times)| iter::repeat_n(*what, *times)).collect()
    }
}

/// One of however many there are.
#[derive(Debug, Clone, Copy)]
struct Place(u32);

impl Place {
    fn index(self, count: usize) -> usize {
        ((u64::from(self.0) * count as u64) >> 32) as usize
    }

    fn of<T>(self, choices: &[T]) -> &T {
        &choices[self.index(choices.len())]
    }
}

fn place() -> impl Strategy<Value = Place> {
    any::<u32>().prop_map(Place)
}

/// Of which kind a format is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Bytes,
}

/// The damage to one file.
#[derive(Debug, Clone)]
pub(super) struct Damage {
    kind: Kind,
    sample: Place,
    changes: Vec<Change>,
}

/// One change: what is done, and where.
#[derive(Debug, Clone, Copy)]
struct Change {
    what: What,
    place: Place,
    other: Place,
    value: Place,
}

/// The names in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    // To texts.
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
    // To both.
    Byte,
    Bit,
    Cut,
    // To bytes.
    Length,
    DropPiece,
    RepeatPiece,
    MovePiece,
    Zeros,
    Splice,
}

impl Damage {
    /// Up to `most` changes of one of the samples; smaller ones are smaller damage.
    pub fn strategy(kind: Kind, most: usize) -> impl Strategy<Value = Self> {
        let change = (select(TABLES.changes(kind)), place(), place(), place())
            .prop_map(|(what, place, other, value)| Change { what, place, other, value });
        (place(), vec(change, 1..=most)).prop_map(move |(sample, changes)| Self {
            kind,
            sample,
            changes,
        })
    }

    /// The damaged file.
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
        match self.what {
            What::Value | What::Borrow | What::Digits | What::DropWord | What::RepeatWord => {
                let words = words(bytes);
                let Some(word) = self.one_of(&words) else { return };
                let text = bytes[word.clone()].to_vec();
                bytes.splice(word, self.in_place_of(&text, samples));
            }
            What::SwapWords => swap(bytes, &words(bytes), self),
            What::DropLine | What::RepeatLine => {
                let line = self.one_of(&lines(bytes)).unwrap_or(0..0);
                let times = if matches!(self.what, What::DropLine) { 0 } else { 2 };
                let text = bytes[line.clone()].repeat(times);
                bytes.splice(line, text);
            }
            What::SwapLines => swap(bytes, &lines(bytes), self),
            What::Rude => self.insert(bytes, TABLES.rude(self.value)),
            What::Nest => self.insert_many(bytes, &TABLES.openers, &TABLES.times),
            What::Long => self.insert_many(bytes, &TABLES.letters, &TABLES.long_times),
            _ => self.of_bytes(bytes, samples),
        }
    }

    /// What comes in place of a number or a word.
    fn in_place_of(self, text: &[u8], samples: &[Vec<u8>]) -> Vec<u8> {
        match self.what {
            What::Value => self.value.of(&TABLES.values).clone().into_bytes(),
            What::Borrow => {
                let sample = self.other.of(samples);
                let words = words(sample);
                let word = words.get(self.value.index(words.len().max(1)));
                word.map_or_else(Vec::new, |word| sample[word.clone()].to_vec())
            }
            What::Digits => {
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
            What::RepeatWord => [text, b" ", text].concat(),
            _ => Vec::new(),
        }
    }

    fn of_bytes(self, bytes: &mut Vec<u8>, samples: &[Vec<u8>]) {
        let place = self.place.index(bytes.len());
        let piece = self.piece(bytes.len());
        match self.what {
            What::Byte => bytes[place] = self.value.index(256) as u8,
            What::Bit => bytes[place] ^= 1 << self.value.index(8),
            What::Cut => bytes.truncate(place),
            What::Length => {
                let width = *self.other.of(&[1, 2, 4, 8]);
                let value = self.value.of(&TABLES.lengths);
                let (little, big) = (value.to_le_bytes(), value.to_be_bytes());
                let ends = [&little[..width], &big[8 - width..]];
                let number = ends[self.value.index(2 * TABLES.lengths.len()) % 2];
                bytes.iter_mut().skip(place).zip(number).for_each(|(byte, new)| *byte = *new);
            }
            What::DropPiece => drop(bytes.drain(piece)),
            What::RepeatPiece => {
                let twice = bytes[piece.clone()].repeat(2);
                bytes.splice(piece, twice);
            }
            What::MovePiece => {
                let text = bytes.drain(piece).collect::<Vec<u8>>();
                let place = self.other.index(bytes.len() + 1);
                bytes.splice(place..place, text);
            }
            What::Zeros => bytes[piece].fill(0),
            What::Splice => {
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

    /// Inserts one of some texts so many times.
    fn insert_many(self, bytes: &mut Vec<u8>, texts: &[String], times: &[usize]) {
        self.insert(bytes, self.value.of(texts).repeat(*self.other.of(times)).as_bytes());
    }

    fn one_of(self, parts: &[Range<usize>]) -> Option<Range<usize>> {
        (!parts.is_empty()).then(|| parts[self.place.index(parts.len())].clone())
    }

    /// Some bytes on from the place.
    fn piece(self, length: usize) -> Range<usize> {
        if length == 0 {
            return 0..0;
        }
        let begin = self.place.index(length);
        begin..length.min(begin + 1 + self.value.index(64))
    }
}

/// Two of the parts change places.
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

/// Where numbers and words stand: "-1.5e3", "icmp_seq", "Mbit".
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

/// Where lines stand, with their ends.
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
        let (first, last) = (Place(0), Place(u32::MAX));
        let change = Change { what: What::SwapWords, place: first, other: last, value: first };
        swap(&mut bytes, &parts, change);
        assert_eq!(bytes, b"three two one");
    }
}
